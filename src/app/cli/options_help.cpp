#include "app/cli/options_help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "app/cli/flags.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const OptionValue& value) {
  return std::visit([](const auto& one) { return Json(one); }, value);
}

std::string range_text(const OptionInfo& info) {
  if (!info.choices.empty()) return fmt::format("{}", fmt::join(info.choices, ", "));
  if (!std::isfinite(info.minimum)) return "";
  constexpr double kLarge = 1 << 20;
  return info.maximum >= kLarge ? fmt::format("from {}", info.minimum)
                                : fmt::format("{} to {}", info.minimum, info.maximum);
}

void append_option(std::string& out, const OptionInfo& info) {
  out += fmt::format("  {}\n      {}", fmt::join(info.flags, ", "), info.meaning);
  if (!info.unit.empty()) out += fmt::format(" ({})", info.unit);
  if (!info.condition.empty()) out += "; read " + info.condition;
  std::vector<std::string> facts;
  if (!info.standard_text.empty())
    facts.push_back("default: " + info.standard_text);
  else if (info.standard)
    facts.push_back("default: " + to_text(*info.standard));
  if (const std::string range = range_text(info); !range.empty()) facts.push_back(range);
  facts.push_back("env: " + Flag{.names = info.flags}.environment_name());
  out += fmt::format("\n      [{}]\n", fmt::join(facts, "; "));
}

std::string preset_text(const PresetInfo& preset) {
  std::string out = fmt::format("preset {}: {}\n\n  --preset {} is:", preset.name, preset.meaning, preset.name);
  const auto add = [&](const OptionInfo& selector, const MethodChoice& choice, const PartInfo& part) {
    if (!choice.name.empty()) out += fmt::format(" {} {}", selector.flags.front(), choice.name);
    for (const MethodInfo& method : part.methods)
      for (const OptionInfo& option : method.options)
        if (const auto found = choice.options.find(option.key);
            found != choice.options.end() && method.name == choice.name)
          out += fmt::format(" {} {}", option.flags.front(), to_text(found->second));
  };
  const std::string before = out;
  const GenerateOptions& set = preset.options;
  const MethodChoice* choices[] = {&set.decoder, &set.window, &set.cache, &set.suffix, &set.smoothing, &set.mode};
  for (std::size_t i = 0; i < options_info().parts.size(); ++i)
    add(options_info().parts[i].selector, *choices[i], options_info().parts[i]);
  return out + (out == before ? " the defaults" : "") + "\n";
}

Json property(const OptionInfo& info) {
  Json json;
  switch (info.type) {
    case OptionType::kBool:
      json["type"] = "boolean";
      break;
    case OptionType::kInteger:
    case OptionType::kUnsigned:
      json["type"] = "integer";
      break;
    case OptionType::kNumber:
      json["type"] = "number";
      break;
    case OptionType::kText:
    case OptionType::kChoice:
      json["type"] = "string";
      break;
  }
  json["description"] = info.meaning;
  if (!info.choices.empty()) json["enum"] = info.choices;
  if (info.type == OptionType::kUnsigned) json["minimum"] = 0;
  if (std::isfinite(info.minimum)) json["minimum"] = info.minimum;
  if (std::isfinite(info.maximum)) json["maximum"] = info.maximum;
  if (info.standard && info.standard_text.empty()) json["default"] = json_of(*info.standard);
  if (!info.standard_text.empty()) json["x-default"] = info.standard_text;
  if (!info.unit.empty()) json["x-unit"] = info.unit;
  if (!info.condition.empty()) json["x-condition"] = info.condition;
  json["x-flags"] = info.flags;
  return json;
}

}  // namespace

std::string methods_text() {
  std::string out;
  for (const PartInfo& part : options_info().parts) {
    out += fmt::format("{}{}\n", part.name, part.selector.flags.empty() ? "" : " (" + part.selector.flags[0] + ")");
    for (const MethodInfo& method : part.methods) out += fmt::format("  {:<21}{}\n", method.name, method.meaning);
    out += "\n";
  }
  out += "presets (--preset)\n";
  for (const PresetInfo& preset : options_info().presets)
    out += fmt::format("  {:<21}{}\n", preset.name, preset.meaning);
  return out;
}

Expected<std::string> method_text(std::string_view name) {
  std::string out;
  std::vector<std::string> known;
  const auto separate = [&out] { out += out.empty() ? "" : "\n"; };
  for (const PartInfo& part : options_info().parts)
    for (const MethodInfo& method : part.methods) {
      known.push_back(method.name);
      if (method.name != name) continue;
      separate();
      out += fmt::format("{} {}: {}\n\n", part.name, method.name, method.meaning);
      if (!part.selector.flags.empty()) out += fmt::format("  {} {}\n", part.selector.flags.front(), method.name);
      for (const OptionInfo& option : method.options) append_option(out, option);
    }
  for (const PresetInfo& preset : options_info().presets) {
    known.push_back(preset.name);
    if (preset.name != name) continue;
    separate();
    out += preset_text(preset);
  }
  if (!out.empty()) return out;
  return Error{ErrorCode::kUsage, "no decoder, window, cache or preset has this name", fmt::format("'{}'", name),
               choice_hint(name, known)};
}

Json options_schema() {
  Json properties = Json::object();
  Json presets = {{"type", "string"}, {"description", "a named set of options; explicit options override it"}};
  for (const PresetInfo& preset : options_info().presets) presets["enum"].push_back(preset.name);
  properties["preset"] = std::move(presets);
  for (const OptionInfo& info : options_info().common) properties[info.key] = property(info);
  for (const PartInfo& part : options_info().parts) {
    if (!part.selector.key.empty()) {
      properties[part.selector.key] = property(part.selector);
      for (const MethodInfo& method : part.methods)
        properties[part.selector.key]["x-meanings"][method.name] = method.meaning;
    }
    for (const MethodInfo& method : part.methods)
      for (const OptionInfo& info : method.options) {
        if (!properties.contains(info.key)) properties[info.key] = property(info);
        properties[info.key]["x-methods"].push_back(method.name);
      }
  }
  return {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
          {"title", "Options of a generation"},
          {"type", "object"},
          {"properties", std::move(properties)},
          {"additionalProperties", false}};
}

}  // namespace dllm::app
