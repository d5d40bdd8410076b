#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "app/flags.h"
#include "app/terminal.h"
#include "dllm/generate.h"
#include "dllm/model.h"

namespace dllm::app {

/// One flag per entry of generate_option_table(). `options` must outlive `flags`.
void add_generate_flags(Flags& flags, GenerateOptions& options);

/// What follows from flags together; call after parsing. llama.cpp chooses between its schedules by giving
/// --diffusion-eps or --diffusion-block-length: an eps means the whole answer as one window.
void finish_generate_options(const Flags& flags, GenerateOptions& options);

/// Every option under its table key.
nlohmann::ordered_json options_json(const GenerateOptions& options);

/// Flags of verbs that load a model.
struct ModelFlags {
  std::string path;  ///< empty: the embedded model
  LoadOptions load;
  std::string chat_template, chat_template_file;
  bool raw = false;
  bool verbose = false;
  std::string backend = "cpu";       ///< or npu: compiled steps on the simulated device
  std::string device = "dart-2048";  ///< profile of --backend npu
  std::vector<std::string> sets;     ///< changed keys of the profile

  /// -m, -t, --isa, --cache-type, --activations, --weight-cache, --backend, --device, --set, -v
  void add_loading(Flags& flags);
  /// --chat-template, --chat-template-file, --raw
  void add_template(Flags& flags);

  /// `--isa list`: prints the kernel sets and returns true.
  bool list_isas(Terminal& terminal) const;
  Expected<LanguageModel> open(Terminal& terminal) const;
};

/// -o/--output, restricted to `formats`; the first is the default.
void add_output_flag(Flags& flags, std::string& target, std::vector<std::string> formats);

/// Whole file; "-" is standard input. Errors: kIo.
Expected<std::string> read_text(const std::string& path, Terminal& terminal);

/// The text that a verb works on: -p, positional words (joined by spaces), -f, or piped standard input.
struct TextFlags {
  std::string prompt, file;
  std::vector<std::string> words;

  /// `noun`: "PROMPT" or "TEXT".
  void add(Flags& flags, const std::string& noun);
  /// Errors: kUsage if there is none or more than one.
  Expected<std::string> read(const Flags& flags, Terminal& terminal) const;
};

}  // namespace dllm::app
