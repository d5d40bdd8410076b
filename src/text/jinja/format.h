#pragma once

#include <string>
#include <string_view>

#include "dllm/error.h"
#include "text/jinja/runtime.h"

namespace dllm::jinja {

/// Python's `format % arguments` with the conversions s, r, d, i, f, x and %, flags 0 and -, width and precision.
/// `safe`: the format is Markup, which escapes what it is given.
Expected<MarkedText> percent_format(Runtime& runtime, const MarkedText& format, bool safe, const Value& arguments);

/// Python's format.format(...) with plain fields: {}, {0}, {name}. kUnsupported: conversions and format specs.
Expected<MarkedText> brace_format(Runtime& runtime, const MarkedText& format, bool safe, const Arguments& arguments);

}  // namespace dllm::jinja
