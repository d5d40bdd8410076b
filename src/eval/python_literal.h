#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dllm {

/// A canonical spelling of a Python literal's value: numbers, strings, bytes, True, False, None, tuples, lists, sets
/// and dictionaries (equal whatever the order of their elements), nested at most 64 deep. Numbers compare as in Python
/// (1 == 1.0 == True). nullopt for anything else.
std::optional<std::string> canonical_python_literal(std::string_view text);

}  // namespace dllm
