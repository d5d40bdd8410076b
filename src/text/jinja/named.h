#pragma once

#include <cstddef>
#include <string_view>

namespace dllm::jinja {

/// A function (pointer) that templates call by name. Tables of them are constants: a map that the first call builds
/// would block a child process for ever, if another thread was building it at the fork.
template <class Function>
struct Named {
  std::string_view name;
  Function function;
};

/// nullptr: the table has no such name.
template <class Function, std::size_t kCount>
constexpr Function find_named(const Named<Function> (&table)[kCount], std::string_view name) {
  for (const Named<Function>& one : table)
    if (one.name == name) return one.function;
  return nullptr;
}

}  // namespace dllm::jinja
