#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace dllm::npu::dram {

/// A queue in one block of memory that grows by doubling. std::deque allocates a node per dozen segments, which is a
/// tenth of the simulation's time.
template <class T>
class Ring {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  T& front() { return items_[first_]; }
  T& back() { return items_[(first_ + size_ - 1) & mask()]; }
  T& operator[](std::size_t i) { return items_[(first_ + i) & mask()]; }
  void push_back(const T& item) {
    if (size_ == items_.size()) grow();
    items_[(first_ + size_++) & mask()] = item;
  }
  void pop_front() {
    first_ = (first_ + 1) & mask();
    --size_;
  }

 private:
  std::size_t mask() const { return items_.size() - 1; }
  void grow() {
    std::vector<T> larger(items_.size() * 2);
    for (std::size_t i = 0; i < size_; ++i) larger[i] = (*this)[i];
    items_ = std::move(larger);
    first_ = 0;
  }
  std::vector<T> items_ = std::vector<T>(16);
  std::size_t first_ = 0, size_ = 0;
};

}  // namespace dllm::npu::dram
