#include "engine/load_rows.h"

#include <utility>
#include <variant>

namespace dllm::load_rows {

LoadOption text(const char* key, std::string LoadOptions::* member, const char* value_name, const char* otherwise,
                const std::string& meaning) {
  LoadOption one{option(key, member, meaning), value_name};
  one.row.info.standard.reset();
  one.row.info.standard_text = otherwise;
  return one;
}

LoadOption named(const char* key, std::string LoadOptions::* member, const std::vector<std::string>& names,
                 const char* value_name, const char* otherwise, const std::string& meaning) {
  LoadOption one = text(key, member, value_name, otherwise, meaning);
  one.row.info.type = OptionType::kChoice;
  one.row.info.choices = names;
  return one;
}

LoadOption number(const char* key, std::int32_t LoadOptions::* member, double most, const char* unit,
                  const char* otherwise, const char* meaning) {
  LoadOption one{option(key, member, 0, most, unit, meaning), "N"};
  one.row.info.standard_text = otherwise;
  return one;
}

LoadOption factor(const char* key, double LoadOptions::* member, double most, const char* otherwise,
                  const char* meaning) {
  LoadOption one{option(key, member, 0, most, "", meaning), "X"};
  one.row.info.standard_text = otherwise;
  return one;
}

LoadOption list(const char* key, std::vector<std::string> LoadOptions::* member, const char* value_name,
                const char* meaning) {
  LoadOption one{{}, value_name};
  OptionInfo& info = one.row.info;
  info.key = key;
  info.flags = {detail::flag_of(key)};
  info.type = OptionType::kText;
  info.repeated = true;
  info.standard_text = "none";
  info.meaning = meaning;
  one.row.store = [member](LoadOptions& load, const OptionValue& value) {
    (load.*member).push_back(std::get<std::string>(value));
  };
  one.row.load = [member](const LoadOptions& load) -> std::optional<OptionValue> {
    std::string all;
    for (const std::string& each : load.*member) all += each + "\n";
    return all;
  };
  return one;
}

namespace {

/// `none`: the value of an option that is not given.
LoadOption own(const char* key, OptionType type, const OptionValue& none, const std::string& meaning) {
  LoadOption one;
  one.of_backend = true;
  OptionInfo& info = one.row.info;
  info.key = key;
  info.flags = {detail::flag_of(key)};
  info.type = type;
  info.meaning = meaning;
  one.row.store = [name = info.key](LoadOptions& load, const OptionValue& value) {
    load.backend_options.insert_or_assign(name, value);
  };
  one.row.load = [name = info.key, none](const LoadOptions& load) -> std::optional<OptionValue> {
    const auto given = load.backend_options.find(name);
    return given == load.backend_options.end() ? none : given->second;
  };
  return one;
}

}  // namespace

LoadOption own_named(const char* key, const std::vector<std::string>& names, const char* otherwise,
                     const std::string& meaning) {
  LoadOption one = own(key, OptionType::kChoice, std::string(), meaning);
  one.value_name = "NAME";
  one.row.info.choices = names;
  one.row.info.standard_text = otherwise;
  return one;
}

LoadOption own_toggle(const char* key, const char* meaning) {
  LoadOption one = own(key, OptionType::kBool, false, meaning);
  one.row.info.standard = false;
  return one;
}

LoadOption own_words(const char* key, const char* value_name, const char* otherwise, const std::string& meaning) {
  LoadOption one = own(key, OptionType::kText, std::string(), meaning);
  one.value_name = value_name;
  one.row.info.standard_text = otherwise;
  return one;
}

LoadOption own_number(const char* key, double most, const char* otherwise, const std::string& meaning) {
  LoadOption one = own(key, OptionType::kInteger, std::int64_t{-1}, meaning);
  one.value_name = "N";
  one.row.info.minimum = 0;
  one.row.info.maximum = most;
  one.row.info.standard_text = otherwise;
  return one;
}

std::string own_text(const LoadOptions& load, std::string_view key) {
  const auto given = load.backend_options.find(key);
  if (given == load.backend_options.end()) return "";
  const auto* const text = std::get_if<std::string>(&given->second);
  return text == nullptr ? "" : *text;
}

bool own_flag(const LoadOptions& load, std::string_view key) {
  const auto given = load.backend_options.find(key);
  if (given == load.backend_options.end()) return false;
  const auto* const flag = std::get_if<bool>(&given->second);
  return flag != nullptr && *flag;
}

std::optional<std::int64_t> own_integer(const LoadOptions& load, std::string_view key) {
  const auto given = load.backend_options.find(key);
  if (given == load.backend_options.end()) return std::nullopt;
  const auto* const number = std::get_if<std::int64_t>(&given->second);
  return number == nullptr ? std::nullopt : std::optional(*number);
}

LoadOption with_flags(LoadOption one, std::vector<std::string> flags) {
  one.row.info.flags = std::move(flags);
  return one;
}

LoadOption of_path(LoadOption one) {
  one.row.info.path = true;
  return one;
}

LoadOption of_model(LoadOption one) {
  one.of_model = true;
  return one;
}

LoadOption usual(LoadOption one) {
  one.usual = true;
  return one;
}

}  // namespace dllm::load_rows
