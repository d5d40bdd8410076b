// Manual pages in man(7)'s macros, from the same declarations as the help.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "app/cli/verb.h"
#include "base/output_file.h"
#include "base/try.h"
#include "dllm/version.h"

namespace dllm::app {
namespace {

/// Text as roff reads it: no command at the start of a line, hyphens that can be copied into a shell.
std::string roff(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else if ((c == '.' || c == '\'') && (result.empty() || result.back() == '\n')) {
      result += "\\&";
      result += c;
    } else {
      result += c;
    }
  }
  return result;
}

std::string page_name(std::string_view verb) {
  std::string name = verb.empty() ? "dllm" : fmt::format("dllm-{}", verb);
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string page_head(std::string_view verb, std::string_view summary, std::string_view arguments) {
  const std::string name = page_name(verb);
  std::string title = name;
  std::ranges::transform(title, title.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return fmt::format(
      ".TH {} 1 \"\" \"dllm {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B dllm{}{}\n{}\n", title,
      DLLM_VERSION, roff(name), roff(summary), verb.empty() ? "" : " ", roff(verb), roff(arguments));
}

std::string flag_entry(const Flag& flag) {
  std::string names;
  for (const std::string& name : flag.names)
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", roff(name));
  std::string text = fmt::format(
      ".TP\n{}{}\n{}", names, flag.value.empty() ? "" : fmt::format(" \\fI{}\\fR", roff(flag.value)), roff(flag.help));
  if (!flag.choices.empty()) text += roff(fmt::format("; one of {}", fmt::join(flag.choices, ", ")));
  text += ".";
  if (!flag.default_text.empty()) text += roff(fmt::format(" Default: {}.", flag.default_text));
  return text + fmt::format(" Environment: {}.\n", roff(flag.environment_name()));
}

std::string verb_page(const VerbEntry& entry) {
  const std::unique_ptr<Verb> verb = entry.make();
  const Flags flags = declared_flags(entry, *verb);
  std::string text = page_head(entry.name, entry.summary, entry.arguments);
  std::string group;
  for (const Flag& flag : flags.flags()) {
    if (flag.group != group) text += fmt::format(".SH \"{}\"\n", roff(group = flag.group));
    text += flag_entry(flag);
  }
  return text + ".SH SEE ALSO\n.BR dllm (1)\n";
}

std::string list_page(std::string_view name, std::string_view summary, const std::vector<VerbEntry>& entries) {
  std::string text = page_head(name, summary, "VERB [OPTIONS]") + ".SH VERBS\n";
  for (const VerbEntry& entry : entries)
    text += fmt::format(".TP\n.BR {} (1)\n{}.\n", roff(page_name(entry.name)), roff(entry.summary));
  return text;
}

constexpr std::string_view kCommon =
    ".SH OPTIONS\n.TP\n\\fB\\-\\-help\\fR, \\fB\\-\\-help\\-all\\fR\nWith a verb: its options.\n"
    ".TP\n\\fB\\-\\-version\\fR\nThe version.\n"
    ".TP\n\\fB\\-\\-completion\\fR \\fISHELL\\fR\nA completion script for bash, zsh or fish.\n"
    ".TP\n\\fB\\-\\-man\\-pages\\fR \\fIDIR\\fR\nWrites the manual pages into a folder.\n"
    ".SH \"EXIT STATUS\"\n0 done, 1 failure, 2 usage, 3 model or file, 4 memory, 5 mismatch, 124 timeout, 130 "
    "interrupted.\n"
    ".SH ENVIRONMENT\nEach option has a variable, which its entry names.\n";

}  // namespace

Expected<void> write_manual(const std::string& folder) {
  const auto write = [&folder](std::string_view verb, const std::string& text) {
    return write_file((std::filesystem::path(folder) / (page_name(verb) + ".1")).string(), text);
  };
  DLLM_CHECK_OK(write("", list_page("", "runs diffusion language models", verbs()) + std::string(kCommon)));
  for (const VerbEntry& entry : verbs()) {
    if (entry.group == nullptr) {
      DLLM_CHECK_OK(write(entry.name, verb_page(entry)));
      continue;
    }
    DLLM_CHECK_OK(write(entry.name, list_page(entry.name, entry.summary, entry.group())));
    for (const VerbEntry& inner : entry.group()) DLLM_CHECK_OK(write(inner.name, verb_page(inner)));
  }
  return {};
}

}  // namespace dllm::app
