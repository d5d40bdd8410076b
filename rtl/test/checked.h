#pragma once

#include <stdexcept>
#include <utility>

#include "dllm/error.h"

namespace dllm::rtl {

/// The value, or an exception, which fails the running test.
template <class T>
T checked(Expected<T> value) {
  if (!value) throw std::runtime_error(value.error().message());
  return std::move(*value);
}

}  // namespace dllm::rtl
