#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

#include "dllm/error.h"

namespace dllm::python {

/// The text of an error, with the command line's flags as keyword arguments: "length" for "--predict".
std::string in_python(std::string_view text);

/// Raises the exception of dllm.errors for the error. Needs the GIL.
[[noreturn]] void raise(const Error& error);

/// The value, or the exception.
template <class T>
T take(Expected<T> result) {
  if (!result) raise(result.error());
  return *std::move(result);
}
inline void take(const Expected<void>& result) {
  if (!result) raise(result.error());
}

/// Runs Python's handlers of pending signals. Throws what they raise (KeyboardInterrupt). Needs the GIL.
inline void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

}  // namespace dllm::python
