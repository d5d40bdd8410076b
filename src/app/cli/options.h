#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/cli/flags.h"
#include "app/cli/hub_flags.h"
#include "app/cli/terminal.h"
#include "dllm/generate.h"
#include "dllm/model.h"

namespace dllm::app {

/// --stop, and one flag per option of options_info(). `options` must outlive `flags`.
void add_generate_flags(Flags& flags, GenerateOptions& options);

/// One flag per row of load_options(). `without`: keys that the verb reads in a way of its own. `load` must outlive
/// `flags`.
void add_load_flags(Flags& flags, LoadOptions& load, const std::vector<std::string_view>& without = {});

/// Flags of verbs that load a model.
struct ModelFlags {
  std::string path;  ///< empty: the embedded model, or one from the hub
  HubFlags hub;
  LoadOptions load;
  std::string chat_template, chat_template_file, template_kwargs;
  bool raw = false;
  bool special = false;  ///< control tokens may be written in prompts
  bool verbose = false;
  bool list_devices = false;

  /// -m, -hf and related flags, add_load_flags(), --list-devices, -v
  void add_loading(Flags& flags);
  /// --chat-template, --chat-template-file, --chat-template-kwargs, --raw, --special
  void add_template(Flags& flags);

  void add_list_devices(Flags& flags);
  /// `--isa list` prints the kernel sets and --list-devices what each backend has; true: one of them was given.
  bool listed(Terminal& terminal) const;
  /// Downloads the model if it comes from a hub (and sets `path` to it), and loads it, with a progress line. Ctrl-C
  /// cancels both (kCancelled).
  Expected<LanguageModel> open(Session& session);
  /// Fewer threads than were asked for, if the machine has not as many; warns then.
  void limit_threads(Terminal& terminal);

 private:
  void print_devices(Terminal& terminal) const;
  Expected<LanguageModel> load_model(Session& session);
  Expected<void> set_kwargs(LanguageModel& model, Terminal& terminal) const;
};

/// -o/--output, restricted to `formats`; the first is the default.
void add_output_flag(Flags& flags, std::string& target, std::vector<std::string> formats);

/// Whole file; "-" is standard input. Errors: kIo.
Expected<std::string> read_text(const std::string& path, Terminal& terminal);

/// The input text of a verb: -p, positional words (joined by spaces), -f, or piped standard input.
struct TextFlags {
  std::string prompt, file;
  std::vector<std::string> words;

  /// `noun`: "PROMPT" or "TEXT".
  void add(Flags& flags, const std::string& noun);
  /// Errors: kUsage if there is none or more than one.
  Expected<std::string> read(const Flags& flags, Terminal& terminal) const;
};

/// --image, once for each image of the message.
void add_image_flag(Flags& flags, std::vector<std::string>& files);
/// The bytes of the files. Errors: kIo.
Expected<std::vector<std::string>> read_images(const std::vector<std::string>& files);

}  // namespace dllm::app
