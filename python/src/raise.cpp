#include "raise.h"

#include <nanobind/stl/string.h>

#include <string>

namespace dllm::python {

namespace nb = nanobind;

void raise(const Error& error) {
  const char* const name = [&error] {
    switch (error.code) {
      case ErrorCode::kUsage:
        return "UsageError";
      case ErrorCode::kInvalidFile:
        return "InvalidFileError";
      case ErrorCode::kUnsupported:
        return "UnsupportedError";
      case ErrorCode::kIo:
        return "FileAccessError";
      case ErrorCode::kResource:
        return "ResourceError";
      case ErrorCode::kCancelled:
        return "CancelledError";
      case ErrorCode::kMismatch:
        return "MismatchError";
    }
    return "Error";
  }();
  const nb::object type = nb::module_::import_("dllm.errors").attr(name);
  const nb::object value = type(error.what, error.where, error.hint);
  PyErr_SetObject(type.ptr(), value.ptr());
  throw nb::python_error();
}

}  // namespace dllm::python
