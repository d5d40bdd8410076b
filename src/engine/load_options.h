#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "decode/option_row.h"
#include "dllm/model.h"

namespace dllm {

/// What computes a model's passes, as far as it decides which load options are read.
enum class Computer : std::uint8_t {
  kCpu = 1,       ///< this processor
  kNumerics = 2,  ///< this processor, in a profile's number formats (LoadOptions::numerics)
  kExecutor = 4,  ///< a simulated device; its values by the executor
  kMachine = 8,   ///< ... by its compiled programs
};

/// An option of loading a model. Declared once, in load_options.cpp: flags, environment variables, Python's keywords
/// with their types, checks and what each backend refuses follow from the row.
struct LoadOption {
  OptionRow<LoadOptions> row;  ///< of a list: `store` appends one text
  std::string placeholder;     ///< of the value in the help: "NAME"
  std::uint8_t readers = 0;    ///< Computers, added
  bool usual = false;          ///< also in the short help

  const OptionInfo& info() const { return row.info; }
  bool read_by(Computer computer) const { return (readers & static_cast<std::uint8_t>(computer)) != 0; }
};

/// In the order of the help.
const std::vector<LoadOption>& load_options();

/// The option with this key or flag; nullptr: none has it.
const LoadOption* find_load_option(std::string_view key_or_flag);

/// Whether the option differs from its default.
bool is_given(const LoadOption& option, const LoadOptions& load);

/// The only check of load options: their values, and whether `computer` reads what is given. Errors: kUsage, with the
/// flag.
Expected<void> check_load(const LoadOptions& load, Computer computer);

/// All that decides what a load gives, as text: equal for options that load the same.
std::string load_key(const LoadOptions& load);

}  // namespace dllm
