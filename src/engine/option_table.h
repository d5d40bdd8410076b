#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dllm/generate.h"

namespace dllm {

/// A field of GenerateOptions, declared once: command line, environment, resolved configuration, documentation (and
/// later the server and Python) read this table.
struct OptionSpec {
  using Target =
      std::variant<bool GenerateOptions::*, std::int32_t GenerateOptions::*, std::uint64_t GenerateOptions::*,
                   double GenerateOptions::*, std::string GenerateOptions::*>;
  std::string_view key;                 ///< "block_length": name in JSON and configuration files
  std::vector<std::string_view> flags;  ///< "--block-length" first, then aliases (llama.cpp's spellings)
  Target target;
  std::string_view help;
  std::string_view group;            ///< heading in --help
  std::vector<std::string> choices;  ///< allowed values of a string; empty: any
  double minimum = 0, maximum = 0;   ///< numeric range, inclusive; equal: unbounded
};

const std::vector<OptionSpec>& generate_option_table();

}  // namespace dllm
