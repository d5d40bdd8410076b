#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace dllm::cpu {

/// Zeroed memory directly from the operating system, in huge pages where available: weights are streamed from end to
/// end in every step, and 4 KiB pages cost one address translation per 64 lines. Pages become resident on first access.
class PageMemory {
 public:
  PageMemory() = default;
  /// Throws std::bad_alloc, also for more bytes than addresses have.
  explicit PageMemory(std::uint64_t bytes);
  ~PageMemory();
  PageMemory(PageMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PageMemory& operator=(PageMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  /// Aligned to a page at least.
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace dllm::cpu
