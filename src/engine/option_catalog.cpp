#include "engine/option_catalog.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace dllm {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* json_type_name(OptionType type) {
  switch (type) {
    case OptionType::kBool:
      return "boolean";
    case OptionType::kInteger:
    case OptionType::kUnsigned:
      return "integer";
    case OptionType::kNumber:
      return "number";
    case OptionType::kText:
      return "text";
    case OptionType::kChoice:
      return "choice";
  }
  return "text";
}

OrderedJson option_json(const OptionInfo& info) {
  OrderedJson json = {{"key", info.key}, {"type", json_type_name(info.type)}, {"meaning", info.meaning}};
  if (!info.unit.empty()) json["unit"] = info.unit;
  if (std::isfinite(info.minimum)) json["minimum"] = info.minimum;
  if (std::isfinite(info.maximum)) json["maximum"] = info.maximum;
  if (!info.choices.empty()) json["choices"] = info.choices;
  if (info.standard) std::visit([&json](const auto& one) { json["default"] = one; }, *info.standard);
  if (!info.standard_text.empty()) json["default_text"] = info.standard_text;
  if (!info.condition.empty()) json["condition"] = info.condition;
  return json;
}

OrderedJson option_list(const std::vector<OptionInfo>& options) {
  OrderedJson list = OrderedJson::array();
  for (const OptionInfo& info : options)
    if (info.type != OptionType::kText) list.push_back(option_json(info));
  return list;
}

/// Whether the loaded model supports the method with all other options at their defaults.
bool usable(const LanguageModel& model, const std::string& selector, const std::string& method) {
  GenerateOptions options;
  return options.set(selector, method) && model.resolve(options);
}

}  // namespace

OrderedJson option_catalog(const LanguageModel& model) {
  OrderedJson parts = OrderedJson::array(), presets = OrderedJson::array();
  for (const PartInfo& part : options_info().parts) {
    if (part.selector.key.empty()) continue;
    OrderedJson methods = OrderedJson::array();
    for (const MethodInfo& method : part.methods)
      methods.push_back({{"name", method.name},
                         {"meaning", method.meaning},
                         {"usable", usable(model, part.selector.key, method.name)},
                         {"options", option_list(method.options)}});
    parts.push_back({{"key", part.selector.key}, {"meaning", part.selector.meaning}, {"methods", std::move(methods)}});
  }
  for (const PresetInfo& preset : options_info().presets)
    presets.push_back(
        {{"name", preset.name}, {"meaning", preset.meaning}, {"usable", usable(model, "preset", preset.name)}});
  return {{"common", option_list(options_info().common)}, {"parts", std::move(parts)}, {"presets", std::move(presets)}};
}

}  // namespace dllm
