#pragma once

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "dllm/error.h"

namespace dllm {

static_assert(std::endian::native == std::endian::little, "values are read and written as they lie in memory");

/// Reads little-endian values from a file's bytes, never past their end. `what` names the value in the error, which
/// includes the offset. Borrows bytes and file name.
class ByteCursor {
 public:
  ByteCursor(std::span<const std::byte> bytes, std::string_view file) : bytes_(bytes), file_(file) {}

  std::uint64_t offset() const { return offset_; }
  std::uint64_t remaining() const { return bytes_.size() - offset_; }

  Expected<std::span<const std::byte>> take(std::uint64_t count, std::string_view what) {
    if (count > remaining())
      return error(ErrorCode::kInvalidFile,
                   fmt::format("{} needs {} bytes, but the file ends after {} more", what, count, remaining()),
                   "the file is truncated or damaged: fetch it again");
    const auto taken = bytes_.subspan(offset_, count);
    offset_ += count;
    return taken;
  }

  template <class T>
  Expected<T> read(std::string_view what) {
    DLLM_TRY(const auto taken, take(sizeof(T), what));
    T value;
    std::memcpy(&value, taken.data(), sizeof(T));
    return value;
  }

  /// A 64-bit length and that many bytes.
  Expected<std::string_view> read_string(std::string_view what) {
    DLLM_TRY(const auto length, read<std::uint64_t>(what));
    DLLM_TRY(const auto taken, take(length, what));
    return std::string_view(reinterpret_cast<const char*>(taken.data()), taken.size());
  }

  /// An error at `offset`, or at the next value.
  Error error(ErrorCode code, std::string what, std::string hint = "") const {
    return error_at(offset_, code, std::move(what), std::move(hint));
  }
  Error error_at(std::uint64_t offset, ErrorCode code, std::string what, std::string hint = "") const {
    return {code, std::move(what), fmt::format("{}, offset {:#x}", file_, offset), std::move(hint)};
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view file_;
  std::uint64_t offset_ = 0;
};

}  // namespace dllm
