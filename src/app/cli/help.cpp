#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/cli/flags.h"

namespace dllm::app {
namespace {

constexpr std::size_t kColumns = 100;
constexpr std::size_t kIndent = 30;

/// Words of `text` in lines that fit next to the left column; the first line continues at column kIndent.
void append_wrapped(std::string& out, std::string_view text) {
  std::size_t column = kIndent;
  bool first = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!first && column + 1 + word.size() > kColumns) {
      out += "\n" + std::string(kIndent, ' ');
      column = kIndent;
      first = true;
    }
    if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    first = false;
  }
  out += '\n';
}

void append_entry(std::string& out, const std::string& left, const std::string& right) {
  out += left;
  if (left.size() + 2 > kIndent)
    out += "\n" + std::string(kIndent, ' ');
  else
    out += std::string(kIndent - left.size(), ' ');
  append_wrapped(out, right);
}

std::string names_of(const Flag& flag) {
  std::string left = "  ";
  // Short spellings first, as in every other manual.
  std::vector<std::string> names;
  for (const bool wanted : {false, true})
    for (const std::string& name : flag.names)
      if (name.starts_with("--") == wanted) names.push_back(name);
  if (names.front().starts_with("--")) left += "    ";
  left += fmt::format("{}", fmt::join(names, ", "));
  return flag.value.empty() ? left : left + " " + flag.value;
}

void append_flag(std::string& out, const Flag& flag) {
  std::string right = flag.help;
  if (!flag.choices.empty()) right += fmt::format("; one of {}", fmt::join(flag.choices, ", "));
  right += " [";
  if (!flag.default_text.empty()) right += fmt::format("default: {}; ", flag.default_text);
  right += fmt::format("env: {}]", flag.environment_name());
  append_entry(out, names_of(flag), right);
}

/// One line: one long spelling and one short one.
void append_short(std::string& out, const Flag& flag) {
  std::string left = "  ";
  for (const std::string& name : flag.names)
    if (!name.starts_with("--")) {
      left += name + ", ";
      break;
    }
  if (left.size() == 2) left += "    ";
  left += flag.long_name();
  if (!flag.value.empty()) left += " " + flag.value;
  std::string right = flag.help;
  if (!flag.default_text.empty()) right += fmt::format(" [default: {}]", flag.default_text);
  out += left;
  out += left.size() + 2 > kIndent ? std::string(2, ' ') : std::string(kIndent - left.size(), ' ');
  out += right + '\n';
}

}  // namespace

std::string Flags::usage() const {
  std::string out = fmt::format("{}\n\nusage: dllm {} {}\n", summary_, verb_, arguments_);
  if (positional_target_) {
    out += "\nArguments:\n";
    append_entry(out, "  " + positional_name_, positional_help_);
  }
  return out;
}

std::string Flags::help() const {
  std::string all = help_all();
  return std::count(all.begin(), all.end(), '\n') <= kHelpLines ? all : short_help();
}

std::string Flags::short_help() const {
  std::string out = usage() + "\n";
  for (const Flag& flag : flags_)
    if (!flag.rare) append_short(out, flag);
  out += fmt::format("\ndllm {} --help-all: every flag, with choices and environment variables\n", verb_);
  if (has("--algorithm"))
    out += fmt::format("dllm {} --help NAME: a decoder, window, cache or preset; dllm options lists them\n", verb_);
  return out;
}

std::string Flags::help_all() const {
  std::string out = usage();
  std::vector<std::string> groups;
  for (const Flag& flag : flags_)
    if (std::find(groups.begin(), groups.end(), flag.group) == groups.end()) groups.push_back(flag.group);
  for (const std::string& title : groups) {
    out += "\n" + title + ":\n";
    for (const Flag& flag : flags_)
      if (flag.group == title) append_flag(out, flag);
  }
  out += "\n";
  append_entry(out, "  -h, --help", "print this help; --help-all: all of it");
  return out;
}

}  // namespace dllm::app
