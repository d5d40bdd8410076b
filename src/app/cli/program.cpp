#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <ostream>
#include <system_error>
#include <utility>

#include "app/cli/environment.h"
#include "app/cli/options_help.h"
#include "app/cli/verb.h"
#include "app/cli/written_files.h"
#include "dllm/version.h"

namespace dllm::app {
namespace {

void report(Terminal& terminal, const std::string& message) {
  // One line, whatever a file's names or a template's message contain.
  std::string line = sanitize(message);
  for (char& c : line)
    if (c == '\n') c = ' ';
  terminal.err << (terminal.colour ? "\x1b[1;31merror:\x1b[0m " : "error: ") << line << std::endl;
}

ExitCode fail(Terminal& terminal, const Error& error) {
  report(terminal, error.message());
  return exit_code(error.code);
}

std::string summary() {
  std::string text = fmt::format(
      "dllm {}: runs diffusion language models\n\n"
      "usage: dllm VERB [OPTIONS]\n\n"
      "  dllm run \"Solve 17+4.\"                  answer a prompt with the embedded model\n"
      "  dllm run -m model.gguf \"Why is ...\"     answer a prompt with your own model\n"
      "  dllm chat -m model.gguf                 chat with it\n\nVerbs:\n",
      DLLM_VERSION);
  for (const VerbEntry& entry : verbs()) text += fmt::format("  {:<12}{}\n", entry.name, entry.summary);
  text +=
      "\nOptions:\n"
      "  --help                      this text; dllm VERB --help shows a verb's options\n"
      "  --version                   the version\n"
      "  --completion SHELL          a completion script for bash, zsh or fish\n"
      "  --man-pages DIR             writes the manual pages into a folder\n\n"
      "Exit codes: 0 done, 1 failure, 2 usage, 3 model or file, 4 memory, 5 mismatch, 124 timeout, 130 interrupted\n";
  return text;
}

/// The word after --help: a method to explain.
std::string help_topic(const std::vector<std::string>& args) {
  for (std::size_t i = 0; i + 1 < args.size(); ++i)
    if ((args[i] == "--help" || args[i] == "-h") && !args[i + 1].starts_with('-')) return args[i + 1];
  return "";
}

/// Runs the verb. If one of its results goes to standard output, its report goes to standard error.
Expected<ExitCode> run_reporting(Verb& verb, const Flags& flags, Session& session) {
  const std::vector<std::string> targets = flags.paths(/*written=*/true);
  if (std::ranges::find(targets, "-") == targets.end()) return verb.run(flags, session);
  const Terminal& terminal = session.terminal;
  Terminal aside{terminal.in, terminal.err, terminal.err};
  aside.in_tty = terminal.in_tty, aside.out_tty = aside.err_tty = terminal.err_tty;
  aside.colour = terminal.colour, aside.width = terminal.width, aside.height = terminal.height;
  Session other{aside,           session.interrupt,   session.command, session.variables,
                session.results, session.results_tty, session.sources};
  return verb.run(flags, other);
}

ExitCode run_verb(const VerbEntry& entry, const std::vector<std::string>& args, Session& session,
                  const Flags::Environment& environment) {
  if (const auto known = check_flag_variables(session.variables); !known) return fail(session.terminal, known.error());
  const std::unique_ptr<Verb> verb = entry.make();
  Flags flags = declared_flags(entry, *verb);
  const auto outcome = flags.parse(args, environment);
  if (!outcome) return fail(session.terminal, outcome.error());
  if (*outcome == ParseOutcome::kRun) {
    if (const auto written = check_written(flags); !written) return fail(session.terminal, written.error());
    session.sources = made_of(flags.paths(/*written=*/false)).sources;
    const auto code = run_reporting(*verb, flags, session);
    session.interrupt.disarm();
    return code ? *code : fail(session.terminal, code.error());
  }
  if (const std::string topic = help_topic(args); !topic.empty() && flags.has("--algorithm")) {
    const auto text = method_text(topic);
    if (!text) return fail(session.terminal, text.error());
    session.terminal.out << *text;
    return kExitOk;
  }
  session.terminal.out << (*outcome == ParseOutcome::kHelpAll ? flags.help_all() : flags.help());
  return kExitOk;
}

/// The second word of `dllm npu isa`.
std::string_view last_word(std::string_view name) { return name.substr(name.rfind(' ') + 1); }

std::string group_summary(const VerbEntry& group) {
  std::string text = fmt::format("{}\n\nusage: dllm {} {}\n\nVerbs:\n", group.summary, group.name, group.arguments);
  for (const VerbEntry& entry : group.group())
    text += fmt::format("  {:<12}{}\n", last_word(entry.name), entry.summary);
  return text + fmt::format("\ndllm {} VERB --help shows a verb's options\n", group.name);
}

ExitCode run_group(const VerbEntry& group, const std::vector<std::string>& args, Session& session,
                   const Flags::Environment& environment) {
  const std::string word = args.empty() ? "--help" : args[0];
  if (word == "--help" || word == "-h" || word == "help") {
    session.terminal.out << group_summary(group);
    return kExitOk;
  }
  std::vector<std::string> names;
  for (const VerbEntry& entry : group.group()) {
    if (last_word(entry.name) == word) return run_verb(entry, {args.begin() + 1, args.end()}, session, environment);
    names.emplace_back(last_word(entry.name));
  }
  return fail(session.terminal,
              {ErrorCode::kUsage, "unknown verb", fmt::format("{} {}", group.name, word), choice_hint(word, names)});
}

ExitCode unknown_verb(Terminal& terminal, const std::string& word) {
  std::vector<std::string> names = {"--help", "--version", "--completion", "--man-pages"};
  for (const VerbEntry& entry : verbs()) names.emplace_back(entry.name);
  const std::string near = nearest(word, names);
  std::string hint = near.empty() ? "see dllm --help" : fmt::format("did you mean {}? see dllm --help", near);
  if (word == "npu") hint = "this build has no simulated NPUs: it was made with DLLM_NPU=OFF";
  if (word.find(' ') != std::string::npos) hint = "a prompt needs a verb: dllm run \"...\"";
  return fail(terminal, {ErrorCode::kUsage, word.starts_with('-') ? "unknown flag" : "unknown verb", word, hint});
}

ExitCode dispatch(const std::vector<std::string>& args, Session& session, const Flags::Environment& environment) {
  Terminal& terminal = session.terminal;
  const std::string word = args.empty() ? "--help" : args[0];
  if (word == "help" && args.size() > 1) {
    std::vector<std::string> words(args.begin() + 1, args.end());
    words.emplace_back("--help");
    return dispatch(words, session, environment);
  }
  if (word == "--help" || word == "-h" || word == "help") {
    terminal.out << summary();
    return kExitOk;
  }
  if (word == "--version" || word == "-V") {
    terminal.out << "dllm " << DLLM_VERSION << "\n";
    return kExitOk;
  }
  if (word == "--completion" || word.starts_with("--completion=")) {
    const std::string shell = word == "--completion" ? (args.size() > 1 ? args[1] : "") : word.substr(13);
    const auto script = completion_script(shell);
    if (!script) return fail(terminal, script.error());
    terminal.out << *script;
    return kExitOk;
  }
  if (word == "--man-pages") {
    const auto written =
        args.size() == 2 ? write_manual(args[1]) : Error{ErrorCode::kUsage, "give one folder", word, ""};
    return written ? kExitOk : fail(terminal, written.error());
  }
  for (const VerbEntry& entry : verbs())
    if (entry.name == word) {
      const std::vector<std::string> rest(args.begin() + 1, args.end());
      return entry.group != nullptr ? run_group(entry, rest, session, environment)
                                    : run_verb(entry, rest, session, environment);
    }
  return unknown_verb(terminal, word);
}

std::string quoted(const std::string& word) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./,:@%+";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string result = "'";
  for (char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

}  // namespace

ExitCode run_program(const std::vector<std::string>& args, Terminal& terminal, Interrupt& interrupt,
                     const Flags::Environment& environment, std::vector<std::string> variables) {
  std::string command = "dllm";
  for (const std::string& word : args) command += " " + quoted(word);
  Session session{terminal, interrupt, command, std::move(variables), &terminal.out, terminal.out_tty};
  ExitCode code = kExitFailure;
  try {
    code = dispatch(args, session, environment);
  } catch (const std::bad_alloc&) {
    return fail(terminal, {ErrorCode::kResource, "out of memory", "", "a smaller model or context may fit"});
  } catch (const std::system_error& error) {
    // Threads; all other system errors are returned as Errors where they occur.
    if (error.code() != std::errc::resource_unavailable_try_again) {
      report(terminal, fmt::format("internal: {}", error.what()));
      return kExitFailure;
    }
    return fail(terminal,
                {ErrorCode::kResource, error.what(), "", "fewer threads (-t) may fit; see ulimit -u and ulimit -v"});
  } catch (const std::exception& error) {
    report(terminal, fmt::format("internal: {}", error.what()));
    return kExitFailure;
  }
  terminal.out.flush();
  if (!terminal.out && code == kExitOk)
    return fail(terminal, {ErrorCode::kIo, "cannot write", "standard output", "is the disk full?"});
  return code;
}

}  // namespace dllm::app
