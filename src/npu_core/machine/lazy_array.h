#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

#include "base/os_memory.h"

namespace dllm::npu {

/// A zero-filled array whose pages are allocated on first access: memories of simulated devices are large and mostly
/// empty. Move-only.
template <class T>
class LazyArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  LazyArray() = default;
  /// Throws std::bad_alloc if the address space is exhausted.
  explicit LazyArray(std::size_t size) : size_(size) {
    if (size == 0) return;
    void* memory = map_memory(size * sizeof(T), /*reserved=*/true);
    if (memory == nullptr) throw std::bad_alloc();
    data_ = static_cast<T*>(memory);
  }
  LazyArray(LazyArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  LazyArray& operator=(LazyArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~LazyArray() {
    if (data_ != nullptr) unmap_memory(data_, size_ * sizeof(T));
  }

  /// Makes it at least `size` long; pointers into it are then void. Throws std::bad_alloc.
  void grow(std::size_t size) {
    if (size <= size_) return;
    if (data_ == nullptr) {
      *this = LazyArray(size);
      return;
    }
    void* memory = grow_memory(data_, size_ * sizeof(T), size * sizeof(T));
    if (memory == nullptr) throw std::bad_alloc();
    data_ = static_cast<T*>(memory);
    size_ = size;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace dllm::npu
