#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/try.h"
#include "text/jinja/format.h"
#include "text/jinja/runtime.h"
#include "text/jinja/strings.h"
#include "text/utf8.h"

namespace dllm::jinja {
namespace {

/// A call in progress: the receiver and the arguments, with typed access.
struct Call {
  Runtime& runtime;
  const Value& self;
  const std::string& name;
  const Arguments& arguments;

  const std::string& text() const { return *self.text(); }
  /// A part of text(), with its marks.
  Expected<Value> part(std::string_view view) const { return runtime.text(self.marked()->part(view)); }

  Expected<const std::string*> text_argument(std::size_t index, const char* parameter) const {
    const Value* value = arguments.find(index, parameter);
    if (value == nullptr || value->text() == nullptr) {
      return type_error(fmt::format("{}() argument {} must be str, not {}", name, index + 1,
                                    value == nullptr ? "absent" : value->type_name()));
    }
    return value->text();
  }

  Expected<long> count_argument(std::size_t index, const char* parameter) const {
    const Value* value = arguments.find(index, parameter);
    if (value == nullptr) return -1L;
    if (!value->integer_like()) return type_error(fmt::format("{}() argument {} must be int", name, index + 1));
    return static_cast<long>(std::clamp<std::int64_t>(value->as_integer(), -1, INT32_MAX));
  }
};

using Method = Expected<Value> (*)(const Call&);

Expected<Value> texts(const Call& call, const std::vector<std::string_view>& parts) {
  DLLM_CHECK_OK(call.runtime.step(static_cast<std::int64_t>(parts.size())));
  std::vector<Value> items;
  for (const std::string_view part : parts) {
    DLLM_TRY(Value item, call.part(part));
    items.push_back(std::move(item));
  }
  return make_sequence(std::move(items));
}

template <std::string (*Function)(std::string_view)>
Expected<Value> map_text(const Call& call) {
  return call.runtime.text(Function(call.text()));
}

template <bool Left, bool Right>
Expected<Value> strip_text(const Call& call) {
  const Value* set = call.arguments.find(0, "chars");
  if (set == nullptr || set->none()) return call.part(strip(call.text(), nullptr, Left, Right));
  DLLM_TRY(const std::string* members, call.text_argument(0, "chars"));
  const std::string_view view = *members;
  DLLM_CHECK_OK(call.runtime.step(static_cast<std::int64_t>(view.size())));
  return call.part(strip(call.text(), &view, Left, Right));
}

// The affix may be a tuple of candidates.
template <bool Start>
Expected<Value> has_affix(const Call& call) {
  const auto matches = [&](const std::string& affix) {
    return Start ? call.text().starts_with(affix) : call.text().ends_with(affix);
  };
  const Value* affix = call.arguments.find(0, "prefix");
  if (affix != nullptr && affix->sequence() != nullptr) {
    for (const Value& item : affix->sequence()->items) {
      if (item.text() == nullptr) return type_error(fmt::format("{}() needs texts", call.name));
      if (matches(*item.text())) return Value(true);
    }
    return Value(false);
  }
  DLLM_TRY(const std::string* text, call.text_argument(0, "prefix"));
  return Value(matches(*text));
}

template <bool FromRight>
Expected<Value> split_text(const Call& call) {
  DLLM_TRY(const long limit, call.count_argument(1, "maxsplit"));
  const Value* separator = call.arguments.find(0, "sep");
  if (separator == nullptr || separator->none()) {
    if (FromRight && limit >= 0) return Error{ErrorCode::kUnsupported, "rsplit() at white space with a limit", "", ""};
    return texts(call, split_space(call.text(), limit));
  }
  DLLM_TRY(const std::string* text, call.text_argument(0, "sep"));
  if (text->empty()) return type_error("empty separator");
  return texts(call, FromRight ? rsplit(call.text(), *text, limit) : split(call.text(), *text, limit));
}

Expected<Value> replace_text(const Call& call) {
  DLLM_TRY(const std::string* from, call.text_argument(0, "old"));
  DLLM_TRY(const std::string* to, call.text_argument(1, "new"));
  DLLM_TRY(const long count, call.count_argument(2, "count"));
  DLLM_CHECK_OK(call.runtime.allocate(replaced_size(call.text(), *from, *to, count)));
  return Value(replace(*call.self.marked(), *from, *call.arguments.find(1, "new")->marked(), count));
}

template <bool FromRight>
Expected<Value> find_text(const Call& call) {
  DLLM_TRY(const std::string* part, call.text_argument(0, "sub"));
  if (call.arguments.positional.size() > 1) {
    return Error{ErrorCode::kUnsupported, fmt::format("{}() with a range", call.name), "", ""};
  }
  const std::size_t at = FromRight ? call.text().rfind(*part) : call.text().find(*part);
  if (at != std::string::npos) {
    return Value(static_cast<std::int64_t>(char_count(std::string_view(call.text()).substr(0, at))));
  }
  if (call.name == "index") return type_error("substring not found");
  return Value(std::int64_t{-1});
}

Expected<Value> count_text(const Call& call) {
  DLLM_TRY(const std::string* part, call.text_argument(0, "sub"));
  if (part->empty()) return Value(static_cast<std::int64_t>(char_count(call.text()) + 1));
  return Value(static_cast<std::int64_t>(split(call.text(), *part, -1).size() - 1));
}

Expected<Value> join_texts(const Call& call) {
  const Value* items = call.arguments.find(0, "iterable");
  if (items == nullptr) return type_error("join() needs an argument");
  DLLM_TRY(const SequencePtr sequence, call.runtime.iterate(*items));
  MarkedText out;
  for (std::size_t i = 0; i < sequence->items.size(); ++i) {
    const std::string* item = sequence->items[i].text();
    if (item == nullptr) {
      return type_error(
          fmt::format("sequence item {}: expected str instance, {} found", i, sequence->items[i].type_name()));
    }
    DLLM_CHECK_OK(call.runtime.allocate(item->size() + call.text().size()));
    if (i > 0) out.append(*call.self.marked());
    out.append(*sequence->items[i].marked());
  }
  return call.runtime.text(std::move(out));
}

template <bool Prefix>
Expected<Value> remove_affix(const Call& call) {
  DLLM_TRY(const std::string* affix, call.text_argument(0, Prefix ? "prefix" : "suffix"));
  std::string_view rest = call.text();
  if (Prefix && rest.starts_with(*affix)) rest.remove_prefix(affix->size());
  if (!Prefix && rest.ends_with(*affix)) rest.remove_suffix(affix->size());
  return call.part(rest);
}

Expected<Value> split_text_lines(const Call& call) { return texts(call, split_lines(call.text())); }

Expected<Value> format_text(const Call& call) {
  DLLM_TRY(MarkedText text, brace_format(call.runtime, *call.self.marked(), call.arguments));
  return call.runtime.text(std::move(text));
}

template <bool (*Predicate)(char32_t)>
Expected<Value> every_char(const Call& call) {
  return Value(all_chars(call.text(), Predicate));
}

bool is_letter_or_digit(char32_t code) { return is_letter(code) || is_decimal(code); }

const std::map<std::string, Method, std::less<>>& text_methods() {
  static const std::map<std::string, Method, std::less<>> methods = {
      {"upper", map_text<upper>},
      {"lower", map_text<lower>},
      {"capitalize", map_text<capitalize>},
      {"title", map_text<title>},
      {"strip", strip_text<true, true>},
      {"lstrip", strip_text<true, false>},
      {"rstrip", strip_text<false, true>},
      {"startswith", has_affix<true>},
      {"endswith", has_affix<false>},
      {"split", split_text<false>},
      {"rsplit", split_text<true>},
      {"splitlines", split_text_lines},
      {"replace", replace_text},
      {"find", find_text<false>},
      {"rfind", find_text<true>},
      {"index", find_text<false>},
      {"count", count_text},
      {"join", join_texts},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"format", format_text},
      {"isdigit", every_char<is_decimal>},
      {"isdecimal", every_char<is_decimal>},
      {"isalpha", every_char<is_letter>},
      {"isalnum", every_char<is_letter_or_digit>},
      {"isspace", every_char<is_unicode_space>},
      {"isupper", [](const Call& call) -> Expected<Value> { return Value(is_upper(call.text())); }},
      {"islower", [](const Call& call) -> Expected<Value> { return Value(is_lower(call.text())); }},
  };
  return methods;
}

Expected<Value> entries(const Call& call) {
  std::vector<Value> items;
  for (const auto& [key, value] : call.self.mapping()->entries) {
    DLLM_CHECK_OK(call.runtime.step());
    if (call.name == "items") {
      DLLM_TRY(Value pair, make_sequence({key, value}, SequenceKind::kTuple));
      items.push_back(std::move(pair));
    } else {
      items.push_back(call.name == "keys" ? key : value);
    }
  }
  return make_sequence(std::move(items));
}

Expected<Value> get_entry(const Call& call) {
  if (call.arguments.positional.empty()) return type_error("get() needs a key");
  if (const Value* found = call.self.mapping()->find(call.arguments.positional[0])) return *found;
  const Value* otherwise = call.arguments.find(1, "default");
  return otherwise != nullptr ? *otherwise : Value();
}

Expected<Value> list_search(const Call& call) {
  if (call.arguments.positional.empty()) return type_error(fmt::format("{}() needs an argument", call.name));
  const auto& items = call.self.sequence()->items;
  DLLM_CHECK_OK(call.runtime.step(static_cast<std::int64_t>(items.size())));
  const auto same = [&](const Value& item) { return equal(item, call.arguments.positional[0]); };
  if (call.name == "count") return Value(static_cast<std::int64_t>(std::ranges::count_if(items, same)));
  const auto found = std::ranges::find_if(items, same);
  if (found == items.end()) return type_error("the value is not in the list");
  return Value(static_cast<std::int64_t>(found - items.begin()));
}

Expected<Value> cycle(const Call& call) {
  const auto& choices = call.arguments.positional;
  if (choices.empty()) return type_error("cycle() needs an argument");
  return choices[(*call.self.get<const LoopState*>())->index % choices.size()];
}

Method find_method(const Value& object, std::string_view name) {
  if (object.text() != nullptr) {
    const auto found = text_methods().find(name);
    return found == text_methods().end() ? nullptr : found->second;
  }
  if (object.mapping() != nullptr) {
    if (name == "items" || name == "keys" || name == "values") return entries;
    return name == "get" ? get_entry : nullptr;
  }
  if (const Sequence* sequence = object.sequence()) {
    const bool listed = sequence->kind != SequenceKind::kGenerator && (name == "index" || name == "count");
    return listed ? list_search : nullptr;
  }
  return object.is<const LoopState*>() && name == "cycle" ? cycle : nullptr;
}

}  // namespace

bool is_method(const Value& object, std::string_view name) { return find_method(object, name) != nullptr; }

Expected<Value> call_method(Runtime& runtime, const Value& object, const std::string& name,
                            const Arguments& arguments) {
  DLLM_CHECK_OK(runtime.scan(object));
  const ContentScope content(runtime, object, arguments);
  return find_method(object, name)(Call{runtime, object, name, arguments});
}

}  // namespace dllm::jinja
