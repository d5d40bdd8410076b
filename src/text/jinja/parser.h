#pragma once

#include <string_view>

#include "dllm/error.h"
#include "text/jinja/ast.h"

namespace dllm::jinja {

/// Errors name line and column: kInvalidFile for bad syntax, kUnsupported for statements of Jinja that chat templates
/// do not use (include, extends, block, ...).
Expected<Block> parse_template(std::string_view source);

}  // namespace dllm::jinja
