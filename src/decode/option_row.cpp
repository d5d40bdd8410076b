#include "decode/option_row.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/nearest.h"
#include "base/parse_text.h"

namespace dllm {

std::string to_text(const OptionValue& value) {
  return std::visit([](const auto& one) { return fmt::format("{}", one); }, value);
}

Error option_error(const OptionInfo& info, std::string what, std::string hint) {
  return {ErrorCode::kUsage, std::move(what), info.flags.empty() ? info.key : info.flags.front(), std::move(hint)};
}

Error no_option(std::string_view method, std::string_view key) {
  return {ErrorCode::kUsage, fmt::format("'{}' has no such option", method), std::string(key), ""};
}

std::string detail::flag_of(std::string_view key) {
  std::string flag = "--" + std::string(key);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

namespace {

Expected<OptionValue> in_range(const OptionInfo& info, OptionValue value, double number) {
  if (!std::isfinite(number)) return option_error(info, "the value is not finite");
  if (number < info.minimum || number > info.maximum)
    return option_error(info, fmt::format("{} is outside [{}, {}]", to_text(value), info.minimum, info.maximum),
                        info.standard_text.empty() ? "" : "if left out: " + info.standard_text);
  return value;
}

Expected<OptionValue> known_choice(const OptionInfo& info, std::string name) {
  if (std::find(info.choices.begin(), info.choices.end(), name) != info.choices.end()) return OptionValue(name);
  std::replace(name.begin(), name.end(), '_', '-');  // as the papers' code spells them
  if (std::find(info.choices.begin(), info.choices.end(), name) != info.choices.end()) return OptionValue(name);
  return option_error(info, fmt::format("'{}' is unknown", name), choice_hint(name, info.choices));
}

Error wrong_type(const OptionInfo& info, const OptionValue& value, std::string_view wanted) {
  return option_error(info, fmt::format("'{}' is not {}", to_text(value), wanted));
}

}  // namespace

Expected<OptionValue> fit_option(const OptionInfo& info, OptionValue value) {
  const auto* integer = std::get_if<std::int64_t>(&value);
  const auto* number = std::get_if<double>(&value);
  switch (info.type) {
    case OptionType::kBool:
      if (!std::holds_alternative<bool>(value)) return wrong_type(info, value, "true or false");
      return value;
    case OptionType::kInteger:
      if (integer == nullptr) return wrong_type(info, value, "an integer");
      return in_range(info, value, static_cast<double>(*integer));
    case OptionType::kUnsigned:
      if (integer != nullptr && *integer >= 0) return OptionValue(static_cast<std::uint64_t>(*integer));
      if (!std::holds_alternative<std::uint64_t>(value)) return wrong_type(info, value, "an integer from 0 to 2^64-1");
      return value;
    case OptionType::kNumber:
      if (integer != nullptr) return in_range(info, static_cast<double>(*integer), static_cast<double>(*integer));
      if (number == nullptr) return wrong_type(info, value, "a number");
      return in_range(info, value, *number);
    case OptionType::kText:
      if (!std::holds_alternative<std::string>(value)) return wrong_type(info, value, "text");
      return value;
    case OptionType::kChoice:
      if (!std::holds_alternative<std::string>(value)) return wrong_type(info, value, "a name");
      return known_choice(info, std::get<std::string>(value));
  }
  return wrong_type(info, value, "known");
}

Expected<OptionValue> parse_option(const OptionInfo& info, std::string_view text) {
  const OptionValue as_text = std::string(text);
  switch (info.type) {
    case OptionType::kBool:
      if (const auto value = parse_bool(text)) return OptionValue(*value);
      return option_error(info, fmt::format("'{}' is neither true nor false", text),
                          "1/true/on/enabled or 0/false/off/disabled");
    case OptionType::kInteger:
      if (const auto value = parse_number<std::int64_t>(text)) return fit_option(info, *value);
      return wrong_type(info, as_text, "an integer");
    case OptionType::kUnsigned:
      // llama.cpp's spelling of "a random seed"; the seed is reported, so the run can be repeated.
      if (text == "-1") return OptionValue(std::uint64_t{std::random_device{}()});
      if (const auto value = parse_number<std::uint64_t>(text)) return OptionValue(*value);
      return option_error(info, fmt::format("'{}' is not an integer from 0 to 2^64-1", text), "-1: a random one");
    case OptionType::kNumber:
      if (const auto value = parse_number<double>(text)) return fit_option(info, *value);
      return wrong_type(info, as_text, "a number");
    case OptionType::kText:
    case OptionType::kChoice:
      return fit_option(info, as_text);
  }
  return wrong_type(info, as_text, "known");
}

}  // namespace dllm
