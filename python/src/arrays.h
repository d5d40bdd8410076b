#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace dllm::python {

/// A NumPy array that owns the vector's memory: nothing is copied.
template <class T, class Item = T>
nanobind::ndarray<nanobind::numpy, T> to_numpy(std::vector<Item> values, std::initializer_list<std::size_t> shape) {
  static_assert(sizeof(T) == sizeof(Item));
  auto owned = std::make_unique<std::vector<Item>>(std::move(values));
  void* const data = owned->data();
  const nanobind::capsule owner(owned.release(), [](void* p) noexcept { delete static_cast<std::vector<Item>*>(p); });
  return nanobind::ndarray<nanobind::numpy, T>(data, shape, owner);
}

template <class T, class Item = T>
nanobind::ndarray<nanobind::numpy, T> to_numpy(std::vector<Item> values) {
  const std::size_t size = values.size();
  return to_numpy<T>(std::move(values), {size});
}

/// One member of a list of structs as an array.
template <class T, class Items, class Get>
nanobind::ndarray<nanobind::numpy, T> column(const Items& items, Get get) {
  using Item = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;  // std::vector<bool> has no array
  std::vector<Item> values;
  values.reserve(items.size());
  for (const auto& item : items) values.push_back(static_cast<Item>(get(item)));
  return to_numpy<T>(std::move(values));
}

}  // namespace dllm::python
