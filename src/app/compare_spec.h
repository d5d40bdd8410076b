#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"

namespace dllm::app {

/// One configuration of a comparison: a name, and flags as on the command line.
struct ComparedOptions {
  std::string name;
  std::string options;
};

/// The contents of --file.
struct CompareSpec {
  std::string items;            ///< path, relative to the file's folder unless absolute; empty: not given
  std::string choose, publish;  ///< likewise, instead of `items`
  std::int32_t tried = 0;       ///< configurations tried on `choose` to find these; 0: not given
  std::string model;            ///< likewise; overridden by --model of the command line and of configurations
  std::string title;            ///< of the plot
  std::string options;          ///< for all configurations, before their own
  std::vector<ComparedOptions> configurations;
};

/// TOML: items (or choose and publish, and tried), model, title, options, and [[configuration]] tables with name and
/// options. Errors (kInvalidFile) with the line: an unknown key, a name twice, no configuration.
Expected<CompareSpec> parse_compare_spec(std::string_view text, const std::string& file);

/// "dual: --cache dual" or, using the flags as the name, "--cache dual". Errors: kUsage.
Expected<ComparedOptions> parse_compared(const std::string& text);

/// Words of a command line: blanks separate, '…' and "…" group, a backslash escapes the next character outside '…'.
/// Errors: kUsage for an unclosed quote.
Expected<std::vector<std::string>> split_words(std::string_view text);

}  // namespace dllm::app
