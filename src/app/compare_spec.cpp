#include "app/compare_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <string>

#include "base/try.h"
#include "format/toml_table.h"

namespace dllm::app {
namespace {

Expected<ComparedOptions> configuration(TomlTable& table) {
  ComparedOptions one;
  DLLM_TRY(one.name, table.text("name"));
  DLLM_TRY(one.options, table.text("options"));
  DLLM_CHECK_OK(table.finish());
  return one;
}

}  // namespace

Expected<CompareSpec> parse_compare_spec(std::string_view text, const std::string& file) {
  DLLM_TRY(TomlTable root, TomlTable::parse(text, file));
  CompareSpec spec;
  DLLM_TRY(const auto items, root.optional_text("items"));
  DLLM_TRY(const auto choose, root.optional_text("choose"));
  DLLM_TRY(const auto publish, root.optional_text("publish"));
  DLLM_TRY(const auto tried, root.optional_integer("tried"));
  DLLM_TRY(const auto model, root.optional_text("model"));
  DLLM_TRY(const auto title, root.optional_text("title"));
  DLLM_TRY(const auto options, root.optional_text("options"));
  DLLM_TRY(auto tables, root.tables("configuration"));
  DLLM_CHECK_OK(root.finish());
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  if (items && (choose || publish)) return root.error("items", "the items are named twice");
  if (tried && (*tried < 1 || *tried > 1 << 30)) return root.error("tried", "a number of configurations is 1 or more");
  if (items) spec.items = (folder / *items).string();
  if (choose) spec.choose = (folder / *choose).string();
  if (publish) spec.publish = (folder / *publish).string();
  spec.tried = static_cast<std::int32_t>(tried.value_or(0));
  if (model) spec.model = (folder / *model).string();
  spec.title = title.value_or("");
  spec.options = options.value_or("");
  std::set<std::string> names;
  for (TomlTable& table : tables) {
    DLLM_TRY(ComparedOptions one, configuration(table));
    if (!names.insert(one.name).second)
      return table.error("name", fmt::format("the name '{}' is given twice", one.name));
    spec.configurations.push_back(std::move(one));
  }
  if (spec.configurations.empty()) return root.error("configuration", "there is no configuration");
  return spec;
}

Expected<ComparedOptions> parse_compared(const std::string& text) {
  if (text.empty() || text.front() == '-') return ComparedOptions{text.empty() ? "defaults" : text, text};
  const auto colon = text.find(':');
  if (colon == std::string::npos)
    return Error{ErrorCode::kUsage, "a configuration without options", fmt::format("'{}'", text),
                 text.find(".json") != std::string::npos ? fmt::format("items are given as --items {}", text)
                                                         : "write \"NAME: OPTIONS\", e.g. \"dual: --cache dual\""};
  return ComparedOptions{text.substr(0, colon), text.substr(colon + 1)};
}

Expected<std::vector<std::string>> split_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool open = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0 ? c == quote : c == '\'' || c == '"') {
      quote = quote != 0 ? 0 : c;
      open = true;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
      open = true;
    } else if (quote == 0 && std::isspace(static_cast<unsigned char>(c))) {
      if (open) words.push_back(std::exchange(word, {}));
      open = false;
    } else {
      word += c;
      open = true;
    }
  }
  if (quote != 0)
    return Error{ErrorCode::kUsage, fmt::format("a {} is not closed", quote), fmt::format("'{}'", text), ""};
  if (open) words.push_back(std::move(word));
  return words;
}

}  // namespace dllm::app
