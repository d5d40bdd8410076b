#pragma once

#include <string>
#include <string_view>

#include "dllm/error.h"
#include "text/jinja_runtime.h"

namespace dllm::jinja {

/// Python's `format % arguments` with the conversions s, r, d, i, f, x and %, flags 0 and -, width and precision.
Expected<std::string> percent_format(Runtime& runtime, std::string_view format, const Value& arguments);

/// Python's format.format(...) with plain fields: {}, {0}, {name}. kUnsupported: conversions and format specs.
Expected<std::string> brace_format(Runtime& runtime, std::string_view format, const Arguments& arguments);

}  // namespace dllm::jinja
