#include "format/toml_table.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "base/try.h"

namespace dllm {
namespace {

/// The library limits how deep values are nested, but not the parts of keys: each is a table in a table, and tables are
/// destroyed and written by recursion. Values nested as deep as the library allows (256), each with a key of so many
/// parts, must fit into a stack with sanitizers too; no profile has a key of more than three.
constexpr int kMostKeyParts = 16;

std::string too_many_parts() { return fmt::format("a key has more than {} parts", kMostKeyParts); }

/// The end of the string that begins at `at`, by TOML's rules; of one that is not closed, that of the line or text.
std::size_t string_end(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const auto has = [&](std::size_t place, std::size_t count) {
    return text.substr(place, count) == std::string(count, quote);
  };
  const std::size_t marks = has(at, 3) ? 3 : 1;
  for (at += marks; at < text.size(); ++at) {
    if (text[at] == '\\' && quote == '"') {
      ++at;
    } else if (has(at, marks)) {
      at += marks;
      while (marks == 3 && has(at, 1)) ++at;  // a string may end with quotes
      return at;
    } else if (text[at] == '\n' && marks == 1) {
      return at;
    }
  }
  return text.size();
}

/// The line with a key, or a header, of too many parts; 0: none. What separates parts separates the digits of numbers
/// too.
int line_of_long_key(std::string_view text) {
  int line = 1, parts = 1;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      const std::size_t end = string_end(text, at);
      line += static_cast<int>(std::ranges::count(text.substr(at, end - at), '\n'));
      at = end;
      continue;
    }
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    const bool in_key =
        c == ' ' || c == '\t' || c == '_' || c == '-' || std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (c == '.') {
      if (++parts > kMostKeyParts) return line;
    } else if (!in_key) {
      parts = 1;
    }
    line += c == '\n' ? 1 : 0;
    ++at;
  }
  return 0;
}

Expected<toml::table> parse_toml(std::string_view text, const std::string& file) {
  if (const int line = line_of_long_key(text); line > 0)
    return Error{ErrorCode::kInvalidFile, too_many_parts(), fmt::format("{}:{}", file, line), ""};
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    return Error{ErrorCode::kInvalidFile, std::string(error.description()),
                 fmt::format("{}:{}", file, error.source().begin.line), ""};
  }
}

std::string scalar_text(const toml::node& node) {
  std::ostringstream out;
  node.visit([&](const auto& value) {
    if constexpr (toml::is_value<decltype(value)>) out << toml::toml_formatter{toml::array{value}};
  });
  std::string text = out.str();  // "[ 4 ]": the formatter quotes strings only inside a container
  const auto begin = text.find_first_not_of("[ "), end = text.find_last_not_of(" ]");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

}  // namespace

/// A node is looked up in `table`, which `root` owns.
struct TomlTable::State {
  std::shared_ptr<const toml::table> root;
  const toml::table* table = nullptr;
  std::string file;
  std::string prefix;  ///< "sram." of nested tables
};

Expected<TomlTable> TomlTable::parse(std::string_view text, const std::string& file) {
  DLLM_TRY(toml::table parsed, parse_toml(text, file));
  auto root = std::make_shared<const toml::table>(std::move(parsed));
  auto state = std::make_shared<State>();
  state->table = root.get();
  state->root = std::move(root);
  state->file = file;
  return TomlTable(std::move(state));
}

std::vector<std::string> TomlTable::keys() const {
  std::vector<std::pair<toml::source_position, std::string>> found;
  for (const auto& [key, node] : *state_->table) found.emplace_back(key.source().begin, std::string(key.str()));
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (auto& [position, name] : found) names.push_back(std::move(name));
  return names;
}

std::string TomlTable::path(std::string_view key) const { return state_->prefix + std::string(key); }

std::string TomlTable::where(std::string_view key) const {
  const toml::node* node = key.empty() ? nullptr : state_->table->get(key);
  if (node == nullptr && !key.empty()) node = state_->table->get(key.substr(0, key.rfind('[')));  // "reads[1]"
  const auto line = (node != nullptr ? node : state_->table)->source().begin.line;
  return line == 0 ? state_->file : fmt::format("{}:{}", state_->file, line);
}

Error TomlTable::error(std::string_view key, std::string what, std::string hint) const {
  return {ErrorCode::kInvalidFile, std::move(what), where(key), std::move(hint)};
}

namespace {

StrictObject::Value value_of(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto integer = node.value_exact<std::int64_t>()) return *integer;
  if (const auto number = node.value_exact<double>()) return *number;
  if (const auto flag = node.value_exact<bool>()) return *flag;
  return StrictObject::Other{node.is_table() ? "a table" : node.is_array() ? "an array" : "a date or time"};
}

}  // namespace

StrictObject::Value TomlTable::value(std::string_view key) const {
  const toml::node* node = state_->table->get(key);
  return node == nullptr ? Value() : value_of(*node);
}

bool TomlTable::visit_list(std::string_view key, const std::function<bool(Value)>& visit) const {
  const toml::node* node = state_->table->get(key);
  const toml::array* array = node != nullptr ? node->as_array() : nullptr;
  if (array == nullptr) return false;
  for (const toml::node& item : *array)
    if (!visit(value_of(item))) break;
  return true;
}

Expected<std::optional<TomlTable>> TomlTable::optional_table(std::string_view key) {
  allow(key);
  const toml::node* node = state_->table->get(key);
  if (node == nullptr) return std::optional<TomlTable>();
  if (!node->is_table()) return error(key, fmt::format("'{}' is no table", path(key)));
  auto state = std::make_shared<State>();
  state->root = state_->root;
  state->table = node->as_table();
  state->file = state_->file;
  state->prefix = path(key) + ".";
  return std::optional<TomlTable>(TomlTable(std::move(state)));
}

Expected<TomlTable> TomlTable::table(std::string_view key) {
  DLLM_TRY(std::optional<TomlTable> found, optional_table(key));
  if (found) return *std::move(found);
  return error("", fmt::format("there is no table '{}'", path(key)));
}

Expected<std::vector<TomlTable>> TomlTable::tables(std::string_view key) {
  allow(key);
  const toml::array* array = state_->table->get(key) != nullptr ? state_->table->get(key)->as_array() : nullptr;
  if (array == nullptr) return error(key, fmt::format("'{}' must be an array of tables", path(key)));
  std::vector<TomlTable> found;
  for (const toml::node& node : *array) {
    if (!node.is_table()) return error(key, fmt::format("'{}' must hold tables only", path(key)));
    auto state = std::make_shared<State>();
    state->root = state_->root;
    state->table = node.as_table();
    state->file = state_->file;
    state->prefix = fmt::format("{}[{}].", path(key), found.size());
    found.push_back(TomlTable(std::move(state)));
  }
  return found;
}

Expected<std::vector<std::string>> TomlTable::scalar_texts(std::string_view key) {
  allow(key);
  const toml::node* node = state_->table->get(key);
  if (node == nullptr) return error("", fmt::format("there is no '{}'", path(key)));
  std::vector<std::string> found;
  const auto add = [&found](const toml::node& item) {
    if (!item.is_table() && !item.is_array()) found.push_back(scalar_text(item));
    return !item.is_table() && !item.is_array();
  };
  if (const toml::array* array = node->as_array()) {
    for (const toml::node& item : *array)
      if (!add(item)) return error(key, fmt::format("'{}' must hold plain values", path(key)));
  } else if (!add(*node)) {
    return error(key, fmt::format("'{}' must be a value or an array of values", path(key)));
  }
  return found;
}

Expected<std::string> with_override(std::string_view text, const std::string& file, std::string_view key,
                                    std::string_view value) {
  DLLM_TRY(toml::table root, parse_toml(text, file));
  if (std::ranges::count(key, '.') >= kMostKeyParts)
    return Error{ErrorCode::kUsage, too_many_parts(), std::string(key.substr(0, 80)), "example: sram.vector_rows"};
  // Elsewhere a value has no keys: dots may be those of a word.
  if (value.find_first_of("{\n") != std::string_view::npos && line_of_long_key(value) > 0)
    return Error{ErrorCode::kUsage, too_many_parts(), std::string(key), "give a value with shorter keys"};
  const Error bad_value{ErrorCode::kUsage, fmt::format("'{}' is not a TOML value", value), std::string(key),
                        "examples: 16, 2.5, true, \"open\""};
  toml::table holder;
  try {
    holder = toml::parse(fmt::format("v = {}", value));
  } catch (const toml::parse_error&) {
    if (value.empty() || value.find_first_of("\"'\n\\=[]{}") != std::string_view::npos) return bad_value;
    holder.insert_or_assign("v", std::string(value));
  }
  if (holder.size() != 1) return bad_value;
  toml::table* table = &root;
  std::string_view rest = key;
  for (auto dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
    const std::string_view part = rest.substr(0, dot);
    rest = rest.substr(dot + 1);
    if (!table->contains(part)) table->insert(part, toml::table{});
    table = table->get(part)->as_table();
    if (table == nullptr)
      return Error{ErrorCode::kUsage, fmt::format("'{}' is not a table", part), std::string(key), ""};
  }
  if (rest.empty()) return Error{ErrorCode::kUsage, "the key is empty", std::string(key), "example: sram.vector_rows"};
  holder.get("v")->visit([&](auto&& node) { table->insert_or_assign(rest, node); });
  std::ostringstream out;
  out << toml::toml_formatter{root};
  return out.str() + "\n";
}

}  // namespace dllm
