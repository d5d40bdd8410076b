#pragma once

#include <cstddef>
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

/// A type of GGML that has no codec here, for messages.
struct ForeignType {
  std::uint32_t number;
  std::string_view name;
  bool unpacked;  ///< python3 -m dllm.unpack rewrites its matrices; python/dllm/unpack.py, UNREAD has the same names
};
inline constexpr ForeignType kForeignTypes[] = {{9, "Q8_1", false}, {15, "Q8_K", false}, {24, "I8", false},
                                                {25, "I16", false}, {26, "I32", false},  {27, "I64", false},
                                                {28, "F64", false}, {34, "TQ1_0", true}, {35, "TQ2_0", true}};

/// Null: no such number is known.
constexpr const ForeignType* find_foreign(std::uint32_t number) {
  for (const ForeignType& type : kForeignTypes)
    if (type.number == number) return &type;
  return nullptr;
}

/// Bytes of a number in a list of integers that readers know; 0: this is none. llama.cpp writes a drafter's map of
/// tokens as I64.
constexpr std::size_t integer_bytes(std::string_view tensor, std::uint32_t number) {
  return tensor != "d2t" ? 0 : number == 27 ? 8 : number == 26 ? 4 : 0;
}
inline constexpr std::int64_t kMostIntegers = std::int64_t{1} << 24;

/// `offset` rounded up; nullopt if that overflows. `alignment` is a power of two.
inline std::optional<std::uint64_t> align_up(std::uint64_t offset, std::uint64_t alignment) {
  const std::uint64_t padding = (alignment - offset % alignment) % alignment;
  if (offset > UINT64_MAX - padding) return std::nullopt;
  return offset + padding;
}

/// `general.alignment`, checked; 32 if the key is absent. The error lacks `where`.
Expected<std::uint64_t> alignment_of(const Metadata& metadata);

}  // namespace dllm::gguf
