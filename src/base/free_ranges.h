#pragma once

#include <cassert>
#include <iterator>
#include <limits>
#include <map>
#include <optional>

namespace dllm {

/// The free parts of an address range. Allocates first fit; ranges may be freed in any order.
template <class T>
class FreeRanges {
 public:
  FreeRanges(T begin, T end) { free_[begin] = end - begin; }

  /// The lowest free range of `size` > 0 that ends at `limit` or below.
  std::optional<T> acquire(T size, T limit = std::numeric_limits<T>::max()) {
    for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
      const auto [first, room] = *hole;
      if (room < size || limit < first || limit - first < size) continue;
      free_.erase(hole);
      if (room > size) free_[first + size] = room - size;
      return first;
    }
    return std::nullopt;
  }

  void release(T first, T size) {
    auto [here, inserted] = free_.emplace(first, size);
    assert(inserted);
    if (const auto next = std::next(here); next != free_.end() && first + size == next->first) {
      here->second += next->second;
      free_.erase(next);
    }
    if (here == free_.begin()) return;
    if (const auto before = std::prev(here); before->first + before->second == first) {
      before->second += here->second;
      free_.erase(here);
    }
  }

  /// First address -> size, no two adjacent.
  const std::map<T, T>& holes() const { return free_; }

 private:
  std::map<T, T> free_;
};

}  // namespace dllm
