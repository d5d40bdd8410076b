#include "app/cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <set>

#include "base/input_file.h"
#include "base/try.h"
#include "image/image.h"

namespace dllm::app {
namespace {

std::string value_name(const OptionInfo& info) {
  switch (info.type) {
    case OptionType::kBool:
      return "";
    case OptionType::kInteger:
    case OptionType::kUnsigned:
      return "N";
    case OptionType::kNumber:
      return "X";
    case OptionType::kText:
      return "TEXT";
    case OptionType::kChoice:
      return "NAME";
  }
  return "";
}

std::string default_text(const OptionInfo& info) {
  if (!info.standard_text.empty()) return info.standard_text;
  if (!info.standard || *info.standard == OptionValue(false)) return "";
  return to_text(*info.standard);
}

/// The most common options; a verb's short help shows only these.
bool is_usual(std::string_view key) {
  static constexpr std::array<std::string_view, 12> kUsual = {
      "length", "block_length", "exact_length", "temperature", "top_k",  "top_p",
      "seed",   "algorithm",    "threshold",    "steps",       "window", "cache"};
  return std::find(kUsual.begin(), kUsual.end(), key) != kUsual.end();
}

/// `readers`: the methods that read the option; empty: every generation does.
Flag flag_of(const OptionInfo& info, const std::vector<std::string>& readers, GenerateOptions& options) {
  std::string help = info.meaning + (info.unit.empty() ? "" : fmt::format(" ({})", info.unit));
  if (!info.condition.empty()) help += "; read " + info.condition;
  if (!readers.empty() && !is_usual(info.key)) help = fmt::format("{}: {}", fmt::join(readers, ", "), help);
  return {.names = info.flags,
          .value = value_name(info),
          .help = help,
          .default_text = default_text(info),
          .choices = info.choices,
          .apply = std::bind_front(&GenerateOptions::set, &options, info.key),
          .rare = !is_usual(info.key)};
}

/// As in llama.cpp, every further one adds its tokens.
Apply add_biases(GenerateOptions& options) {
  return [&options, all = std::string()](const std::string& text) mutable {
    all += (all.empty() ? "" : ",") + text;
    return options.set("logit_bias", all);
  };
}

void add_part_flags(Flags& flags, const PartInfo& part, GenerateOptions& options) {
  std::string title = part.name;
  title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
  flags.group(title);
  if (!part.selector.key.empty()) flags.add(flag_of(part.selector, {}, options));
  std::set<std::string> seen;
  for (const MethodInfo& method : part.methods)
    for (const OptionInfo& info : method.options) {
      if (!seen.insert(info.key).second) continue;
      std::vector<std::string> readers;
      for (const MethodInfo& other : part.methods)
        if (std::ranges::any_of(other.options, [&](const OptionInfo& one) { return one.key == info.key; }))
          readers.push_back(other.name);
      if (part.methods.size() == 1) readers.clear();
      flags.add(flag_of(info, readers, options));
    }
}

}  // namespace

void add_generate_flags(Flags& flags, GenerateOptions& options) {
  const OptionsInfo& all = options_info();
  flags.group("Generation");
  flags.add({.names = {"--stop", "-r", "--reverse-prompt"},
             .value = "TEXT",
             .help = "end the answer before this text; may be repeated",
             .apply = into(options.stop)});
  flags.add({.names = {"--json-schema-file", "-jf"},
             .value = "FILE",
             .help = "read the JSON Schema of --json-schema from a file",
             .takes_path = true,
             .apply = [&options](const std::string& path) -> Expected<void> {
               DLLM_TRY(const std::string text, read_input(path, kMostTextBytes));
               return options.set("json_schema", text);
             },
             .rare = true});
  std::vector<std::string> presets;
  for (const PresetInfo& preset : all.presets) presets.push_back(preset.name);
  flags.add({.names = {"--preset"},
             .value = "NAME",
             .help = "a named set of options; explicit options override it",
             .default_text = "none",
             .choices = presets,
             .apply = [&options](const std::string& text) { return options.set("preset", text); }});
  for (const OptionInfo& info : all.common) {
    Flag flag = flag_of(info, {}, options);
    if (info.key == "logit_bias") flag.apply = add_biases(options);
    flags.add(std::move(flag));
  }
  for (const PartInfo& part : all.parts) add_part_flags(flags, part, options);
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
  flags.positionals("[" + noun + "...]", "the text; - is standard input, the default if it is a pipe", 1 << 20, words);
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
  // Editors and echo end files with a newline that is not meant to be part of the prompt.
  if (text.back() == '\n') text.pop_back();
  if (!text.empty() && text.back() == '\r') text.pop_back();
  return text;
}

void add_image_flag(Flags& flags, std::vector<std::string>& files) {
  flags.add(
      {.names = {"--image"},
       .value = "FILE",
       .help = "PNG, JPEG or WebP image before the text of the message, for models with --mmproj; may be repeated",
       .takes_path = true,
       .apply = into(files)});
}

Expected<std::vector<std::string>> read_images(const std::vector<std::string>& files) {
  std::vector<std::string> images;
  for (const std::string& file : files) {
    DLLM_TRY(images.emplace_back(), read_input(file, kMostImageBytes));
  }
  return images;
}

}  // namespace dllm::app
