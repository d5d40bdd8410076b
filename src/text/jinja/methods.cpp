#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "text/jinja/format.h"
#include "text/jinja/named.h"
#include "text/jinja/runtime.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode_case.h"
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
  Expected<Value> part(std::string_view view) const { return like_self(self.marked()->part(view)); }
  /// What methods of Markup return is Markup too.
  Expected<Value> like_self(MarkedText made) const { return runtime.text(std::move(made), self.safe()); }

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

template <MarkedText (*Function)(const MarkedText&)>
Expected<Value> map_text(const Call& call) {
  return call.like_self(Function(*call.self.marked()));
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
    return texts(call, FromRight ? rsplit_space(call.text(), limit) : split_space(call.text(), limit));
  }
  DLLM_TRY(const std::string* text, call.text_argument(0, "sep"));
  if (text->empty()) return type_error("empty separator");
  return texts(call, FromRight ? rsplit(call.text(), *text, limit) : split(call.text(), *text, limit));
}

Expected<Value> replace_text(const Call& call) {
  DLLM_TRY(const std::string* from, call.text_argument(0, "old"));
  DLLM_TRY(const std::string* to, call.text_argument(1, "new"));
  DLLM_TRY(const long count, call.count_argument(2, "count"));
  const Value& by = *call.arguments.find(1, "new");
  MarkedText with = *by.marked();
  if (call.self.safe()) {
    DLLM_TRY(with, escaped(call.runtime, by));
    to = &with.bytes;
  }
  DLLM_CHECK_OK(call.runtime.allocate(replaced_size(call.text(), *from, *to, count)));
  return Value(replace(*call.self.marked(), *from, with, count), call.self.safe());
}

// find(part, start, end), which counts characters; `index` raises where `find` gives -1.
template <bool FromRight>
Expected<Value> find_text(const Call& call) {
  DLLM_TRY(const std::string* part, call.text_argument(0, "sub"));
  std::string_view within = call.text();
  std::size_t skipped = 0;
  if (call.arguments.positional.size() > 1) {
    const auto all = chars(call.text());
    const auto size = static_cast<std::int64_t>(all.size());
    std::int64_t bounds[2] = {0, size};
    for (std::size_t i = 1; i < std::min<std::size_t>(call.arguments.positional.size(), 3); ++i) {
      const Value& given = call.arguments.positional[i];
      if (given.none()) continue;
      if (!given.integer_like()) return type_error("slice indices must be integers or None");
      const std::int64_t at = given.as_integer();
      bounds[i - 1] = std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, i == 1 ? INT64_MAX : size);
    }
    if (bounds[0] > bounds[1]) {
      if (call.name.ends_with("index")) return type_error("substring not found");
      return Value(std::int64_t{-1});
    }
    const auto offset = [&](std::int64_t at) {
      return at < size ? static_cast<std::size_t>(all[static_cast<std::size_t>(at)].data() - call.text().data())
                       : call.text().size();
    };
    within = within.substr(offset(bounds[0]), offset(bounds[1]) - offset(bounds[0]));
    skipped = static_cast<std::size_t>(bounds[0]);
  }
  const auto at = FromRight ? find_last(within, *part) : find_first(within, *part);
  if (at) return Value(static_cast<std::int64_t>(skipped + char_count(within.substr(0, *at))));
  if (call.name.ends_with("index")) return type_error("substring not found");
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
    if (out.bytes.size() > call.runtime.limits().output) return limit_error("a joined text grows too long");
    if (i > 0) out.append(*call.self.marked());
    if (call.self.safe()) {
      DLLM_TRY(const MarkedText text, escaped(call.runtime, sequence->items[i]));
      out.append(text);
    } else {
      out.append(*sequence->items[i].marked());
    }
  }
  return call.like_self(std::move(out));
}

template <bool Prefix>
Expected<Value> remove_affix(const Call& call) {
  DLLM_TRY(const std::string* affix, call.text_argument(0, Prefix ? "prefix" : "suffix"));
  std::string_view rest = call.text();
  if (Prefix && rest.starts_with(*affix)) rest.remove_prefix(affix->size());
  if (!Prefix && rest.ends_with(*affix)) rest.remove_suffix(affix->size());
  return call.part(rest);
}

Expected<Value> split_text_lines(const Call& call) {
  const Value* keep = call.arguments.find(0, "keepends");
  return texts(call, split_lines(call.text(), keep != nullptr && keep->truthy()));
}

// (before, separator, after); (text, "", "") or ("", "", text) without a separator.
template <bool FromRight>
Expected<Value> partition_text(const Call& call) {
  DLLM_TRY(const std::string* separator, call.text_argument(0, "sep"));
  if (separator->empty()) return type_error("empty separator");
  const std::string_view text = call.text();
  const auto found = FromRight ? find_last(text, *separator) : find_first(text, *separator);
  const std::size_t begin = found ? *found : FromRight ? 0 : text.size();
  const std::size_t end = found ? *found + separator->size() : begin;
  DLLM_TRY(Value before, call.part(text.substr(0, begin)));
  DLLM_TRY(Value middle, call.part(text.substr(begin, end - begin)));
  DLLM_TRY(Value after, call.part(text.substr(end)));
  return make_sequence({std::move(before), std::move(middle), std::move(after)}, SequenceKind::kTuple);
}

template <bool Left, bool Right>
Expected<Value> pad_text(const Call& call) {
  const Value* width = call.arguments.find(0, "width");
  if (width == nullptr || !width->integer_like()) return type_error(fmt::format("{}() needs a width", call.name));
  if (call.arguments.find(1, "fillchar") != nullptr)
    return Error{ErrorCode::kUnsupported, fmt::format("{}() with another character than the space", call.name), "", ""};
  if (width->as_integer() > 100'000) return limit_error("a width of more than 100000");
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(width->as_integer(), 0));
  return call.like_self(padded(*call.self.marked(), size, Left, Right));
}

Expected<Value> format_text(const Call& call) {
  DLLM_TRY(MarkedText text, brace_format(call.runtime, *call.self.marked(), call.self.safe(), call.arguments));
  return call.like_self(std::move(text));
}

template <bool (*Predicate)(char32_t)>
Expected<Value> every_char(const Call& call) {
  return Value(all_chars(call.text(), Predicate));
}

bool is_letter_or_digit(char32_t code) { return is_letter(code) || is_digit_char(code) || is_numeric(code); }
bool is_ascii(char32_t code) { return code < 0x80; }

constexpr Named<Method> kTextMethods[] = {
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
    {"rindex", find_text<true>},
    {"partition", partition_text<false>},
    {"rpartition", partition_text<true>},
    {"center", pad_text<true, true>},
    {"ljust", pad_text<false, true>},
    {"rjust", pad_text<true, false>},
    {"swapcase", map_text<swap_case>},
    {"isascii",
     [](const Call& call) -> Expected<Value> {
       return Value(call.text().empty() || all_chars(call.text(), is_ascii));
     }},
    {"count", count_text},
    {"join", join_texts},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"format", format_text},
    {"isdigit", every_char<is_digit_char>},
    {"isnumeric", every_char<is_numeric>},
    {"isdecimal", every_char<is_decimal>},
    {"isalpha", every_char<is_letter>},
    {"isalnum", every_char<is_letter_or_digit>},
    {"isspace", every_char<is_unicode_space>},
    {"isupper", [](const Call& call) -> Expected<Value> { return Value(is_upper_text(call.text())); }},
    {"islower", [](const Call& call) -> Expected<Value> { return Value(is_lower_text(call.text())); }},
};

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
  DLLM_TRY(const Value* found, find_entry(call.runtime, *call.self.mapping(), call.arguments.positional[0]));
  if (found != nullptr) return *found;
  const Value* otherwise = call.arguments.find(1, "default");
  return otherwise != nullptr ? *otherwise : Value();
}

Expected<Value> list_search(const Call& call) {
  if (call.arguments.positional.empty()) return type_error(fmt::format("{}() needs an argument", call.name));
  const auto& items = call.self.sequence()->items;
  const Value& wanted = call.arguments.positional[0];
  if (call.name == "index") {
    DLLM_TRY(const std::size_t at, index_of(call.runtime, items, wanted));
    if (at == items.size()) return type_error("the value is not in the list");
    return Value(static_cast<std::int64_t>(at));
  }
  std::int64_t count = 0;
  for (const Value& item : items) {
    DLLM_TRY(const bool same, equal(call.runtime, item, wanted));
    count += same ? 1 : 0;
  }
  return Value(count);
}

Expected<Value> cycle(const Call& call) {
  const auto& choices = call.arguments.positional;
  if (choices.empty()) return type_error("cycle() needs an argument");
  return choices[(*call.self.get<const LoopState*>())->index % choices.size()];
}

Method find_method(const Value& object, std::string_view name) {
  if (object.text() != nullptr) return find_named(kTextMethods, name);
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
  return find_method(object, name)(Call{runtime, object, name, arguments});
}

}  // namespace dllm::jinja
