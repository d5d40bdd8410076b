#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dllm {

/// The candidate nearest to `word` by edit distance, empty if none is close.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// "known: a, b, c", or "did you mean 'b'?" if one is close.
std::string choice_hint(std::string_view word, const std::vector<std::string>& choices);

}  // namespace dllm
