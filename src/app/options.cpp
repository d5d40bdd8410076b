#include "app/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/try.h"
#include "engine/option_table.h"

namespace dllm::app {
namespace {

template <class... Ts>
struct Overload : Ts... {
  using Ts::operator()...;
};

/// Other programs' spellings of a value: llama.cpp's numbers, and the underscores of the papers' code.
std::string canonical_choice(std::string_view key, std::string value) {
  static const std::map<std::string, std::string, std::less<>> algorithm_numbers = {
      {"0", "origin"}, {"1", "entropy"}, {"2", "topk-margin"}, {"3", "random"}, {"4", "low-confidence"}};
  if (key == "algorithm")
    if (const auto found = algorithm_numbers.find(value); found != algorithm_numbers.end()) return found->second;
  std::replace(value.begin(), value.end(), '_', '-');
  return value;
}

Apply setter(const OptionSpec& spec, GenerateOptions& options) {
  constexpr double max_int = std::numeric_limits<std::int32_t>::max();
  const bool bounded = spec.minimum < spec.maximum;
  return std::visit(Overload{
                        [&](bool GenerateOptions::* target) { return into(options.*target); },
                        [&](std::uint64_t GenerateOptions::* target) { return into(options.*target); },
                        [&](std::int32_t GenerateOptions::* target) {
                          return into(options.*target, static_cast<std::int32_t>(bounded ? spec.minimum : -max_int),
                                      static_cast<std::int32_t>(bounded ? spec.maximum : max_int));
                        },
                        [&](double GenerateOptions::* target) {
                          constexpr double limit = std::numeric_limits<double>::max();
                          return into(options.*target, bounded ? spec.minimum : -limit, bounded ? spec.maximum : limit);
                        },
                        [&](std::string GenerateOptions::* target) -> Apply {
                          if (spec.choices.empty()) return into(options.*target);
                          return [apply = into(options.*target, spec.choices), key = spec.key](
                                     const std::string& value) { return apply(canonical_choice(key, value)); };
                        },
                    },
                    spec.target);
}

std::string default_text(const OptionSpec& spec) {
  const GenerateOptions defaults;
  return std::visit(Overload{
                        [&](bool GenerateOptions::* target) { return std::string(defaults.*target ? "on" : ""); },
                        [&](std::string GenerateOptions::* target) { return defaults.*target; },
                        [&](auto target) { return fmt::format("{}", defaults.*target); },
                    },
                    spec.target);
}

std::string placeholder(const OptionSpec& spec) {
  return std::visit(Overload{
                        [](bool GenerateOptions::*) { return ""; },
                        [](std::string GenerateOptions::*) { return "NAME"; },
                        [](double GenerateOptions::*) { return "X"; },
                        [](auto) { return "N"; },
                    },
                    spec.target);
}

}  // namespace

void add_generate_flags(Flags& flags, GenerateOptions& options) {
  for (const OptionSpec& spec : generate_option_table()) {
    flags.group(std::string(spec.group));
    flags.add({.names = {spec.flags.begin(), spec.flags.end()},
               .value = placeholder(spec),
               .help = std::string(spec.help),
               .default_text = default_text(spec),
               .choices = spec.choices,
               .apply = setter(spec, options)});
  }
}

void finish_generate_options(const Flags& flags, GenerateOptions& options) {
  if (flags.given("--eps") && !flags.given("--window") && !flags.given("--block-length")) options.window = "whole";
}

nlohmann::ordered_json options_json(const GenerateOptions& options) {
  nlohmann::ordered_json json;
  for (const OptionSpec& spec : generate_option_table())
    std::visit([&](auto target) { json[std::string(spec.key)] = options.*target; }, spec.target);
  return json;
}

void add_output_flag(Flags& flags, std::string& target, std::vector<std::string> formats) {
  target = formats.front();
  flags.add({.names = {"-o", "--output"},
             .value = "FORMAT",
             .help = "form of the result",
             .default_text = formats.front(),
             .choices = formats,
             .apply = into(target, formats)});
}

void TextFlags::add(Flags& flags, const std::string& noun) {
  flags.group("Input");
  flags.add({.names = {"-p", "--prompt"}, .value = "TEXT", .help = "the text", .apply = into(prompt)});
  flags.add({.names = {"-f", "--file"},
             .value = "FILE",
             .help = "read the text from a file; - is standard input",
             .takes_path = true,
             .apply = into(file)});
  flags.positionals("[" + noun + "...]", "the text; - reads standard input, as do pipes when no text is given", 1 << 20,
                    words);
}

Expected<std::string> TextFlags::read(const Flags& flags, Terminal& terminal) const {
  const int sources = int{flags.given("--prompt")} + int{flags.given("--file")} + int{!words.empty()};
  if (sources > 1)
    return Error{ErrorCode::kUsage, "the text is given twice", fmt::format("dllm {}", flags.verb()),
                 "give one of -p, -f and arguments"};
  if (flags.given("--prompt")) return prompt;
  const bool dash = words.size() == 1 && words.front() == "-";
  if (!words.empty() && !dash) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
  }
  const Error missing{
      ErrorCode::kUsage, "there is no text", fmt::format("dllm {}", flags.verb()),
      fmt::format("give it as an argument, with -p or -f, or through a pipe; see dllm {} --help", flags.verb())};
  if (!dash && file.empty() && terminal.in_tty) return missing;
  DLLM_TRY(std::string text, read_text(file.empty() ? "-" : file, terminal));
  if (text.empty()) return missing;
  // Editors and echo end files with a newline that nobody meant as part of the prompt.
  if (text.back() == '\n') text.pop_back();
  if (!text.empty() && text.back() == '\r') text.pop_back();
  return text;
}

}  // namespace dllm::app
