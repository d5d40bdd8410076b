#include "base/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/quote_name.h"

namespace dllm {
namespace {

constexpr std::size_t kStopInterval = 4096;  ///< values; some 100 us

std::uint64_t hash_of(std::string_view key) {
  std::uint64_t hash = key.size();
  for (; key.size() >= sizeof hash; key.remove_prefix(sizeof hash)) {
    std::uint64_t word = 0;
    std::memcpy(&word, key.data(), sizeof word);
    hash = mix64(hash, word);
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, key.data(), key.size());
  return mix64(hash, rest);
}

/// A key that occurs twice; null: none does. Keys are sorted by hash, and those of one hash by their bytes. A hash
/// table would be quadratic for keys that were chosen to collide; here they only cost comparisons.
template <class Members>
const std::string* twin_key(const Members& members) {
  if (members.size() <= 8) {
    for (std::size_t i = 1; i < members.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (members[i].first == members[j].first) return &members[i].first;
    return nullptr;
  }
  std::vector<std::pair<std::uint64_t, const std::string*>> keys;
  keys.reserve(members.size());
  for (const auto& member : members) keys.emplace_back(hash_of(member.first), &member.first);
  std::ranges::sort(keys, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : *a.second < *b.second;
  });
  const auto twin = std::ranges::adjacent_find(
      keys, [](const auto& a, const auto& b) { return a.first == b.first && *a.second == *b.second; });
  return twin == keys.end() ? nullptr : twin->second;
}

bool is_plain(std::string_view key) {
  return !key.empty() && key.size() <= 64 && std::ranges::all_of(key, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '$';
  });
}

/// The library's "[json.exception.parse_error.101] parse error at line 1, column 2: ..." without its number, and short:
/// it quotes what was read last, which may be the whole text.
std::string reason(std::string_view what) {
  const std::size_t end = what.find("] ");
  if (end != what.npos) what.remove_prefix(end + 2);
  std::string text;
  for (const char c : what.substr(0, 200)) text += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return text;
}

/// Begins the strings that stand for numbers of Python's json module while the library parses.
constexpr std::string_view kPythonNumber{"\0python ", 8};
constexpr std::pair<std::string_view, double> kPythonNumbers[] = {
    {"NaN", std::numeric_limits<double>::quiet_NaN()}, {"Infinity", HUGE_VAL}, {"-Infinity", -HUGE_VAL}};

std::optional<double> python_number(std::string_view name) {
  for (const auto& [known, value] : kPythonNumbers)
    if (name == known) return value;
  return std::nullopt;
}

std::string with_python_numbers(std::string_view text) {
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  bool in_string = false;
  while (!text.empty()) {
    const auto number = std::ranges::find_if(
        kPythonNumbers, [&](const auto& known) { return !in_string && text.starts_with(known.first); });
    if (number != std::end(kPythonNumbers)) {
      result += fmt::format("\"\\u0000python {}\"", number->first);
      text.remove_prefix(number->first.size());
      continue;
    }
    const std::size_t count = in_string && text[0] == '\\' && text.size() > 1 ? 2 : 1;
    if (text[0] == '"') in_string = !in_string;
    result += text.substr(0, count);
    text.remove_prefix(count);
  }
  return result;
}

/// Builds the value from the parser's events. Values are appended where they belong, so that nothing is searched.
template <class Json>
class JsonBuilder {
 public:
  static constexpr bool kOrdered = !std::is_same_v<Json, nlohmann::json>;

  explicit JsonBuilder(const JsonRules& rules) : rules_(rules) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(typename Json::number_integer_t value) { return add(value); }
  bool number_unsigned(typename Json::number_unsigned_t value) { return add(value); }
  bool number_float(typename Json::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& value) {
    if (rules_.python_numbers && value.starts_with(kPythonNumber))
      if (const auto number = python_number(std::string_view(value).substr(kPythonNumber.size()))) return add(*number);
    return add(std::move(value));
  }
  bool binary(typename Json::binary_t&) { return fail("binary data"); }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_array() { return close(); }
  bool key(std::string& key);
  bool end_object();
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    return fail("not valid JSON: " + reason(error.what()));
  }

  Json take() { return std::move(root_); }
  Error error() const { return *error_; }

 private:
  struct Open {
    Json* value;
    const std::string* key = nullptr;  ///< the latest, of an object
    Json* slot = nullptr;              ///< of the value that belongs to it
  };

  Json* place(Json value);
  bool add(Json value) { return place(std::move(value)) != nullptr; }
  bool open(Json value);
  bool close() {
    open_.pop_back();
    return true;
  }
  bool fail(std::string what, const std::string* key = nullptr);
  std::string path(const std::string* key) const;

  const JsonRules& rules_;
  Json root_;
  std::vector<Open> open_;
  std::size_t keys_ = 0, values_ = 0;
  std::optional<Error> error_;
};

/// The first failure counts: the parser reports one of its own after ours.
template <class Json>
bool JsonBuilder<Json>::fail(std::string what, const std::string* key) {
  if (error_) return false;
  const std::string place = path(key);
  error_ = Error{rules_.code, std::move(what), rules_.name + (rules_.name.empty() || place.empty() ? "" : ", ") + place,
                 rules_.hint};
  return false;
}

template <class Json>
std::string JsonBuilder<Json>::path(const std::string* key) const {
  std::string text = rules_.root;
  const auto add_key = [&text](const std::string& name) {
    if (!is_plain(name))
      text += "[" + quote_name(name) + "]";
    else
      text += (text.empty() ? "" : ".") + name;
  };
  for (std::size_t i = 0; i < open_.size(); ++i) {
    const bool last = i + 1 == open_.size();
    if (open_[i].value->is_array())
      text += fmt::format("[{}]", open_[i].value->size() - (last ? 0 : 1));
    else if (last && key != nullptr)
      add_key(*key);
    else if (open_[i].key != nullptr)
      add_key(*open_[i].key);
  }
  return text;
}

/// Null if it is refused.
template <class Json>
Json* JsonBuilder<Json>::place(Json value) {
  if (++values_ > rules_.values) return fail(fmt::format("more than {} values", rules_.values)), nullptr;
  if (values_ % kStopInterval == 0 && rules_.stop.stop_requested()) {
    fail("the reading was stopped");
    error_->code = ErrorCode::kCancelled;
    return nullptr;
  }
  if (open_.empty()) {
    root_ = std::move(value);
    return &root_;
  }
  const Open& inner = open_.back();
  if (inner.value->is_array()) {
    auto& list = inner.value->template get_ref<typename Json::array_t&>();
    list.push_back(std::move(value));
    return &list.back();
  }
  *inner.slot = std::move(value);
  return inner.slot;
}

template <class Json>
bool JsonBuilder<Json>::open(Json value) {
  if (open_.size() >= static_cast<std::size_t>(rules_.depth))
    return fail(fmt::format("it is nested more than {} deep", rules_.depth));
  // The parent gets no other value while this one is open, so the pointer stays valid.
  Json* const made = place(std::move(value));
  if (made != nullptr) open_.push_back({made});
  return made != nullptr;
}

template <class Json>
bool JsonBuilder<Json>::key(std::string& key) {
  if (++keys_ > rules_.keys) return fail(fmt::format("more than {} keys", rules_.keys));
  Open& inner = open_.back();
  auto& object = inner.value->template get_ref<typename Json::object_t&>();
  if constexpr (kOrdered) {
    // Its own emplace() searches all members.
    auto& members = static_cast<typename Json::object_t::Container&>(object);
    members.emplace_back(std::move(key), nullptr);
    inner.key = &members.back().first;
    inner.slot = &members.back().second;
  } else {
    const auto [member, fresh] = object.try_emplace(std::move(key), nullptr);
    if (!fresh) return fail(fmt::format("the key {} occurs twice", quote_name(member->first)), &member->first);
    inner.key = &member->first;
    inner.slot = &member->second;
  }
  return true;
}

template <class Json>
bool JsonBuilder<Json>::end_object() {
  if constexpr (kOrdered) {
    const auto& object = open_.back().value->template get_ref<const typename Json::object_t&>();
    if (const std::string* twin = twin_key(static_cast<const typename Json::object_t::Container&>(object)))
      return fail(fmt::format("the key {} occurs twice", quote_name(*twin)), twin);
  }
  return close();
}

}  // namespace

template <class Json>
Expected<Json> read_json(std::string_view text, const JsonRules& rules) {
  if (text.size() > rules.bytes)
    return Error{rules.code, fmt::format("{} bytes, more than {}", text.size(), rules.bytes),
                 rules.name.empty() ? rules.root : rules.name, rules.hint};
  std::string rewritten;
  if (rules.python_numbers && (text.find("NaN") != text.npos || text.find("Infinity") != text.npos))
    text = rewritten = with_python_numbers(text);
  JsonBuilder<Json> builder(rules);
  if (!Json::sax_parse(text, &builder)) return builder.error();
  return builder.take();
}

template Expected<nlohmann::json> read_json(std::string_view text, const JsonRules& rules);
template Expected<nlohmann::ordered_json> read_json(std::string_view text, const JsonRules& rules);

}  // namespace dllm
