#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"

namespace dllm::app {

/// One configuration of a comparison: a name and flags as they would be typed.
struct ComparedOptions {
  std::string name;
  std::string options;
};

/// What --file holds.
struct CompareSpec {
  std::string items;            ///< path, relative to the file's folder unless absolute; empty: not given
  std::string choose, publish;  ///< likewise, in place of `items`
  std::int32_t tried = 0;       ///< configurations tried on `choose` to find these; 0: not told
  std::string model;            ///< likewise; --model of the command line and of configurations comes first
  std::string title;            ///< of the plot
  std::string options;          ///< for all configurations, in front of their own
  std::vector<ComparedOptions> configurations;
};

/// TOML: items (or choose and publish, and tried), model, title, options, and [[configuration]] tables with name and
/// options. Errors (kInvalidFile) with the line: an unknown key, a name twice, no configuration.
Expected<CompareSpec> parse_compare_spec(std::string_view text, const std::string& file);

/// "dual: --cache dual" or, named after itself, "--cache dual". Errors: kUsage.
Expected<ComparedOptions> parse_compared(const std::string& text);

/// Words of a command line: blanks separate, '…' and "…" join, a backslash takes the next character as it is outside
/// '…'. Errors: kUsage for a quote that is not closed.
Expected<std::vector<std::string>> split_words(std::string_view text);

}  // namespace dllm::app
