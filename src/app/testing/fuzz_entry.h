#pragma once

#include <string_view>

#include "app/compare_spec.h"

namespace dllm::app {

/// The body of fuzz/fuzz_compare_spec.cpp, which a test replays over its corpus: any text is a comparison, a word list
/// of options, or gives a meaningful error.
inline void fuzz_compare_spec(std::string_view text) {
  const auto require = [](const auto& result) {
    if (!result && result.error().what.empty()) __builtin_trap();
  };
  const auto spec = parse_compare_spec(text, "input");
  require(spec);
  if (spec)
    for (const ComparedOptions& one : spec->configurations) require(split_words(one.options));
  require(split_words(text));
  require(parse_compared(std::string(text)));
}

}  // namespace dllm::app
