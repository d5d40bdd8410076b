#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "decode/option_row.h"
#include "dllm/model.h"

namespace dllm {

/// An option of loading a model. Declared once: flags, environment variables, Python's keywords with their types,
/// checks and what each backend refuses follow from the row. Those of one backend are in its file
/// (BackendEntry::options), the others in load_options.cpp.
struct LoadOption {
  OptionRow<LoadOptions> row;  ///< of a list: `store` appends one text
  std::string value_name;      ///< of the value, in the help: "FILE"; empty: a switch
  bool usual = false;          ///< also in the short help
  bool of_model = false;       ///< changes the model before a backend sees it, so that all of them read it
  bool of_backend = false;     ///< a value in LoadOptions::backend_options

  const OptionInfo& info() const { return row.info; }
};

/// One way in which a backend runs a model, as far as it decides which load options are read.
struct LoadReader {
  std::string backend;            ///< its name
  std::vector<std::string> keys;  ///< of the options that it reads, besides "backend" and those of the model
  /// Why it does not read an option that the first backend reads, and what to do instead.
  std::string refusal, hint;

  bool reads(const LoadOption& option) const;
};

/// In the order of the help: of every backend, then of each of backends().
const std::vector<LoadOption>& load_options();

/// The option with this key or flag; nullptr: none has it.
const LoadOption* find_load_option(std::string_view key_or_flag);

/// Whether the option differs from its default.
bool is_given(const LoadOption& option, const LoadOptions& load);

/// The only check of load options: their values, and whether `reader` reads what is given. Errors: kUsage, with the
/// flag.
Expected<void> check_load(const LoadOptions& load, const LoadReader& reader);

/// All that decides what a load gives, as text: equal for options that load the same.
std::string load_key(const LoadOptions& load);

}  // namespace dllm
