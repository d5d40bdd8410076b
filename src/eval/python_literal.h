#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dllm {

/// A spelling that is the same for all Python literals of one value: numbers, strings, bytes, True, False, None,
/// tuples, lists, sets and dictionaries (equal whatever the order of their elements), nested at most 64 deep. Numbers
/// compare as Python compares them (1 == 1.0 == True). nullopt for anything else.
std::optional<std::string> canonical_python_literal(std::string_view text);

}  // namespace dllm
