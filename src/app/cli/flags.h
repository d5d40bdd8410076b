#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/nearest.h"
#include "base/parse_text.h"
#include "dllm/error.h"

namespace dllm::app {

/// Accepts a value from the command line or the environment. The caller fills in the error's `where`.
using Apply = std::function<Expected<void>(const std::string& value)>;

/// One flag, declared once, for parsing, its environment variable, help and shell completion.
struct Flag {
  /// "-m", "--model"; single-dash names may have several letters, as llama.cpp's "-sys". The first long name is the
  /// flag's name in messages and determines its environment variable: "--block-length" -> DLLM_ARG_BLOCK_LENGTH.
  std::vector<std::string> names = {};
  std::string value = {};  ///< its name in the help: "FILE"; empty: a switch
  std::string help = {};
  std::string default_text = {};          ///< empty: not shown
  std::vector<std::string> choices = {};  ///< for help and completion; `apply` checks them
  bool takes_path = false;                ///< completion offers file names
  /// The value is a file that the verb writes when its work is done: the target is checked before the verb runs, and -
  /// is standard output (write_result()).
  bool written = false;
  Apply apply = {};
  /// The flag is read only if one of `needs` is given, and none of `without`; otherwise it is an error. In any
  /// spelling.
  std::vector<std::string> needs = {}, without = {};
  bool rare = false;       ///< left out of --help if space is short; --help-all has it
  std::string group = {};  ///< set by Flags::group()

  const std::string& long_name() const;
  std::string environment_name() const;
  /// The environment variables of all long spellings, the first one's first.
  std::vector<std::string> environment_names() const;
};

/// What the arguments of Flags::parse request.
enum class ParseOutcome { kRun, kHelp, kHelpAll };

/// The flags of one verb. Values come from the command line, else from the environment, else from the targets' current
/// values. CLI11 splits the arguments; values are parsed here, so that both sources follow the same rules.
class Flags {
 public:
  using Environment = std::function<const char*(const std::string& name)>;

  /// `verb`: "run"; `arguments`: "[OPTIONS] [PROMPT]"; `summary`: one line.
  Flags(std::string verb, std::string arguments, std::string summary);

  /// Heading of the flags added from now on.
  void group(std::string title) { group_ = std::move(title); }
  void add(Flag flag);
  /// Sets `needs` (`without`) of all flags that the group has so far.
  void read_only_with(std::string_view group, const std::vector<std::string>& needs);
  void read_only_without(std::string_view group, const std::vector<std::string>& others);
  /// Removes one of a flag's spellings, for a verb in which it has another meaning.
  void free_name(std::string_view name);
  /// Arguments without a flag; more than `maximum` are an error.
  void positionals(std::string name, std::string help, std::size_t maximum, std::vector<std::string>& target);

  /// Errors: kUsage, for the first mistake.
  Expected<ParseOutcome> parse(const std::vector<std::string>& args, const Environment& environment);

  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// Whether the flag was set, by command line or environment. `name`: any of its spellings.
  bool given(std::string_view name) const;
  /// Values of the given flags that name files: those that the verb writes, or the others.
  std::vector<std::string> paths(bool written) const;

  /// Help that fits on a screen of kHelpLines lines: everything if possible, else one line per flag, without rare ones.
  static constexpr int kHelpLines = 40;
  std::string help() const;
  /// Every flag, with its choices, default and environment variable.
  std::string help_all() const;
  const std::string& verb() const { return verb_; }
  const std::string& summary() const { return summary_; }
  const std::vector<Flag>& flags() const { return flags_; }

 private:
  Expected<void> apply_value(std::size_t index, const std::string& value, const std::string& origin);
  Expected<void> apply_environment(const Environment& environment);
  Expected<void> check_combinations() const;
  Error unknown_flag(const std::string& token) const;
  /// The arguments for CLI11, in spellings that it supports, and the words after "--".
  struct SplitArguments {
    std::vector<std::string> flags, literal;
    std::string unknown;              ///< the first word that is neither a flag nor a bundle of switches; empty: none
    std::optional<Error> detached{};  ///< "--raw false": a switch whose value would be a word of the prompt
  };
  SplitArguments split(const std::vector<std::string>& args) const;
  const Flag* find(std::string_view name) const;
  /// "--raw=false" of "--no-raw", if that is no flag itself and --raw is a switch; else the argument.
  std::string without_no(const std::string& argument) const;
  /// "-vx": known switches of one letter; "-n64": a flag of one letter with its value.
  bool is_bundle(std::string_view token) const;
  std::string usage() const;
  std::string short_help() const;

  std::string verb_, arguments_, summary_, group_ = "General";
  std::vector<Flag> flags_;
  std::vector<char> given_;
  std::vector<std::pair<std::size_t, std::string>> values_;  ///< as given, by the position of the flag
  std::string positional_name_, positional_help_;
  std::size_t positional_maximum_ = 0;
  std::vector<std::string>* positional_target_ = nullptr;
};

using dllm::choice_hint;
using dllm::nearest;

Error bad_value(std::string what, std::string hint = "");

/// Setters for the usual targets. The target must outlive the Flags.
Apply into(std::string& target);
Apply into(std::string& target, std::vector<std::string> choices);
Apply into(std::vector<std::string>& target);  ///< appends
Apply into(bool& target);
Apply into(std::int32_t& target, std::int32_t minimum, std::int32_t maximum);
/// `absent`: what applies without the flag, for the hint.
Apply into(std::optional<std::int32_t>& target, std::int32_t minimum, std::int32_t maximum, std::string absent);
Apply into(double& target, double minimum, double maximum);
Apply into(std::uint64_t& target);

}  // namespace dllm::app
