#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dllm/error.h"
#include "format/metadata.h"

/// Common to the reader and writer of GGUF (ggml, gguf.md of its docs).
namespace dllm::gguf {

inline constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
inline constexpr std::uint32_t kVersion = 3;
inline constexpr std::uint64_t kDefaultAlignment = 32;
inline constexpr std::uint64_t kMaxAlignment = std::uint64_t{1} << 30;  ///< limits padding
inline constexpr std::size_t kMaxKeyBytes = 65535;
inline constexpr std::string_view kAlignmentKey = "general.alignment";

/// `offset` rounded up; nullopt if that overflows. `alignment` is a power of two.
inline std::optional<std::uint64_t> align_up(std::uint64_t offset, std::uint64_t alignment) {
  const std::uint64_t padding = (alignment - offset % alignment) % alignment;
  if (offset > UINT64_MAX - padding) return std::nullopt;
  return offset + padding;
}

/// `general.alignment`, checked; 32 if the key is absent. The error lacks `where`.
Expected<std::uint64_t> alignment_of(const Metadata& metadata);

}  // namespace dllm::gguf
