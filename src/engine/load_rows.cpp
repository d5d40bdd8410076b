#include "engine/load_rows.h"

#include <utility>

namespace dllm::load_rows {

LoadOption text(const char* key, std::string LoadOptions::* member, const char* placeholder, const char* otherwise,
                const std::string& meaning) {
  LoadOption one{option(key, member, meaning), placeholder};
  one.row.info.standard.reset();
  one.row.info.standard_text = otherwise;
  return one;
}

LoadOption named(const char* key, std::string LoadOptions::* member, const std::vector<std::string>& names,
                 const char* placeholder, const char* otherwise, const std::string& meaning) {
  LoadOption one = text(key, member, placeholder, otherwise, meaning);
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

LoadOption toggle(const char* key, bool LoadOptions::* member, const char* meaning) {
  return {option(key, member, meaning), ""};
}

LoadOption list(const char* key, std::vector<std::string> LoadOptions::* member, const char* placeholder,
                const char* meaning) {
  LoadOption one{{}, placeholder};
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

LoadOption with_flags(LoadOption one, std::vector<std::string> flags) {
  one.row.info.flags = std::move(flags);
  return one;
}

LoadOption of_path(LoadOption one) {
  one.row.info.path = true;
  return one;
}

LoadOption usual(LoadOption one) {
  one.usual = true;
  return one;
}

}  // namespace dllm::load_rows
