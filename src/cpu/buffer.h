#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>

namespace dllm::cpu {

/// Grow-only memory aligned to a cache line. Growing discards the contents: buffers are sized before they are written.
class Buffer {
 public:
  /// At least `bytes`; throws std::bad_alloc (the backend turns it into an Error).
  void reserve(std::size_t bytes) {
    if (bytes <= size_) return;
    const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (rounded < bytes) throw std::bad_alloc();
    data_.reset();
    size_ = 0;
    data_.reset(static_cast<std::byte*>(::operator new(rounded, std::align_val_t{kAlignment}, std::nothrow)));
    if (!data_) throw std::bad_alloc();
    size_ = rounded;
  }

  std::byte* data() { return data_.get(); }
  std::size_t size() const { return size_; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

/// The most bytes of one buffer, where sizes and differences of pointers end at `size_max` and its half: 64 TiB, or 2
/// GiB.
constexpr std::uint64_t most_bytes(std::uint64_t size_max) { return std::min(std::uint64_t{1} << 46, size_max / 2); }

/// sizeof(T) * count; throws std::bad_alloc if that overflows or is absurd.
template <class T>
std::size_t bytes_of(std::int64_t count) {
  constexpr std::uint64_t kMost = most_bytes(std::numeric_limits<std::size_t>::max()) / sizeof(T);
  if (count < 0 || static_cast<std::uint64_t>(count) > kMost) throw std::bad_alloc();
  return static_cast<std::size_t>(count) * sizeof(T);
}

}  // namespace dllm::cpu
