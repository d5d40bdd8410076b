#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace dllm {

/// Hash of bytes that arrive in pieces, eight at a time in independent lanes, so that it runs at the speed of memory.
/// The same for any pieces. It detects damage, not forgery: a single changed word is always found.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  static constexpr std::size_t kLanes = 8, kStride = kLanes * sizeof(std::uint64_t);
  using Lanes = std::array<std::uint64_t, kLanes>;
  static void take(Lanes& lanes, const std::byte* stride);

  Lanes lanes_ = {1, 2, 3, 4, 5, 6, 7, 8};
  std::array<std::byte, kStride> rest_{};  ///< bytes after the last whole stride
  std::size_t pending_ = 0;                ///< of them
  std::uint64_t size_ = 0;
};

inline std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  Checksum sum;
  sum.add(bytes);
  return sum.value();
}

}  // namespace dllm
