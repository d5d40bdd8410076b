#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "app/cli/exit_code.h"
#include "app/cli/flags.h"
#include "app/cli/interrupt.h"
#include "app/cli/terminal.h"
#include "base/output_file.h"
#include "dllm/error.h"

namespace dllm::app {

/// The environment of a running verb.
struct Session {
  Terminal& terminal;
  Interrupt& interrupt;
  std::string command;                  ///< as typed, for results
  std::vector<std::string> variables;   ///< names in the environment that look like flags' variables
  std::ostream* results;                ///< standard output, for results written to -
  bool results_tty = false;             ///< it is a terminal
  std::vector<FileIdentity> sources{};  ///< the files that the verb's flags name as input: never overwritten
};

/// One word after `dllm`. An object lives for one command.
class Verb {
 public:
  virtual ~Verb() = default;
  /// Binds the verb's flags to its members.
  virtual void declare(Flags& flags) = 0;
  /// The exit code, or the error to report.
  virtual Expected<ExitCode> run(const Flags& flags, Session& session) = 0;
};

struct VerbEntry {
  std::string_view name;
  std::string_view arguments;
  std::string_view summary;
  std::unique_ptr<Verb> (*make)() = nullptr;
  /// A verb of a group has a name of two words, such as `dllm npu isa`. For the group itself `make` is null.
  const std::vector<VerbEntry>& (*group)() = nullptr;
};

/// In the order of the help.
const std::vector<VerbEntry>& verbs();

/// For programs that have further verbs (research/), before main() begins: the value initialises a static object.
bool add_verb(const VerbEntry& entry);

/// The flags of a verb that will not run, for help and completion.
Flags declared_flags(const VerbEntry& entry, Verb& verb);

/// The whole program. `args` does not include the program's name; `variables` as returned by flag_variables(). Reports
/// errors; never throws.
ExitCode run_program(const std::vector<std::string>& args, Terminal& terminal, Interrupt& interrupt,
                     const Flags::Environment& environment, std::vector<std::string> variables = {});

/// Writes a manual page per verb into an existing folder, dllm-run.1 and so on. Errors: kIo.
Expected<void> write_manual(const std::string& folder);

/// Script for `shell` (bash, zsh, fish). Errors: kUsage.
Expected<std::string> completion_script(std::string_view shell);

}  // namespace dllm::app
