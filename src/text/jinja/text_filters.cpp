#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/named.h"
#include "text/jinja/strings.h"
#include "text/utf8.h"

namespace dllm::jinja {
namespace {

// The functions of str that keep Markup what it is.
template <MarkedText (*Function)(const MarkedText&)>
Expected<Value> map_filter(const FilterCall& call) {
  DLLM_TRY(const MarkedText text, call.input_text());
  return call.runtime.text(Function(text), call.input.safe());
}

// Jinja joins the words, which makes a plain str.
Expected<Value> title_words(const FilterCall& call) {
  DLLM_TRY(const MarkedText text, call.input_text());
  return call.runtime.text(title_filter(text));
}

Expected<Value> trim(const FilterCall& call) {
  DLLM_TRY(const MarkedText text, call.input_text());
  const Value* set = call.find(0, "chars");
  if (set == nullptr || set->none())
    return call.runtime.text(text.part(strip(text.bytes, nullptr, true, true)), call.input.safe());
  if (set->text() == nullptr) return type_error("'chars' of trim must be a string");
  const std::string_view members = *set->text();
  return call.runtime.text(text.part(strip(text.bytes, &members, true, true)), call.input.safe());
}

Expected<Value> to_string(const FilterCall& call) {
  if (call.input.text() != nullptr) return call.input;
  DLLM_TRY(MarkedText text, call.input_text());
  return Value(std::move(text));
}

Expected<Value> mark_safe(const FilterCall& call) {
  DLLM_TRY(MarkedText text, call.input_text());
  return Value(std::move(text), /*safe=*/true);
}

Expected<Value> escape(const FilterCall& call) {
  DLLM_TRY(MarkedText text, escaped(call.runtime, call.input));
  return Value(std::move(text), /*safe=*/true);
}

Expected<Value> force_escape(const FilterCall& call) {
  DLLM_TRY(const MarkedText text, call.input_text());
  return call.runtime.text(escape_html(text), /*safe=*/true);
}

Expected<Value> replace_filter(const FilterCall& call) {
  DLLM_TRY(const MarkedText text, call.input_text());
  const Value* by = call.find(1, "new");
  if (by == nullptr) return type_error("replace needs 'old' and 'new'");
  DLLM_TRY(const MarkedText from, call.text_or(0, "old", ""));
  DLLM_TRY(const MarkedText to, call.runtime.str(*by));
  const Value* limit = call.find(2, "count");
  std::int64_t count = -1;
  if (limit != nullptr && !limit->none()) {
    DLLM_TRY(count, call.integer_or(2, "count", -1));
  }
  const long clamped = static_cast<long>(std::clamp<std::int64_t>(count, -1, INT32_MAX));
  DLLM_CHECK_OK(call.runtime.allocate(replaced_size(text.bytes, from.bytes, to.bytes, clamped)));
  return Value(replace(text, from.bytes, to, clamped));
}

Expected<Value> indent(const FilterCall& call) {
  DLLM_TRY(MarkedText text, call.input_text());
  const Value* width = call.find(0, "width");
  MarkedText margin;
  if (width != nullptr && width->text() != nullptr) {
    margin = *width->marked();
  } else {
    DLLM_TRY(const std::int64_t size, call.integer_or(0, "width", 4));
    if (size > 1000) return limit_error("an indentation of more than 1000");
    margin.bytes.assign(static_cast<std::size_t>(std::max<std::int64_t>(size, 0)), ' ');
  }
  const bool first = call.flag_or(1, "first", false), blank = call.flag_or(2, "blank", false);
  // As in Jinja: because of the newline added here, a trailing newline of the text counts as an empty last line.
  text.append("\n");
  const auto lines = split_lines(text.bytes);
  DLLM_CHECK_OK(call.runtime.allocate(text.bytes.size() + lines.size() * margin.bytes.size()));
  MarkedText out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n");
    if (i == 0 ? first : blank || !lines[i].empty()) out.append(margin);
    out.append_part(text, static_cast<std::size_t>(lines[i].data() - text.bytes.data()), lines[i].size());
  }
  return Value(std::move(out), call.input.safe());
}

Expected<Value> center(const FilterCall& call) {
  DLLM_TRY(const MarkedText text, call.input_text());
  DLLM_TRY(const std::int64_t width, call.integer_or(0, "width", 80));
  if (width > 100'000) return limit_error("a width of more than 100000");
  return call.runtime.text(padded(text, static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), true, true),
                           call.input.safe());
}

// Runs of letters, digits, marks and connectors: Python's \w+.
Expected<Value> word_count(const FilterCall& call) {
  DLLM_TRY(const MarkedText text, call.input_text());
  std::int64_t words = 0;
  bool inside = false;
  for (const std::string_view c : chars(text.bytes)) {
    const bool word = c == "_" || all_chars(c, [](char32_t code) { return is_letter(code) || is_numeric(code); });
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value(words);
}

Expected<Value> tojson(const FilterCall& call) {
  JsonStyle style;
  style.ascii = call.flag_or(0, "ensure_ascii", false);
  if (const Value* indentation = call.find(1, "indent"); indentation != nullptr && !indentation->none()) {
    DLLM_TRY(const std::int64_t size, call.integer_or(1, "indent", 0));
    style.indent = static_cast<int>(std::clamp<std::int64_t>(size, 0, 64));
  }
  if (const Value* separators = call.find(2, "separators"); separators != nullptr && !separators->none()) {
    const Sequence* pair = separators->sequence();
    if (pair == nullptr || pair->items.size() != 2 || !pair->items[0].text() || !pair->items[1].text()) {
      return type_error("'separators' of tojson must be two strings");
    }
    style.item_separator = *pair->items[0].marked();
    style.key_separator = *pair->items[1].marked();
  } else if (style.indent >= 0) {
    style.item_separator.bytes = ",";
  }
  style.sort_keys = call.flag_or(3, "sort_keys", false);
  DLLM_TRY(MarkedText json, to_json(call.runtime, call.input, style));
  return call.runtime.text(std::move(json));
}

Expected<Value> format_filter(const FilterCall& call) {
  DLLM_TRY(const MarkedText text, call.input_text());
  DLLM_TRY(const Value arguments, make_sequence(call.arguments.positional, SequenceKind::kTuple));
  DLLM_TRY(MarkedText out, percent_format(call.runtime, text, call.input.safe(), arguments));
  return Value(std::move(out), call.input.safe());
}

}  // namespace

Expected<MarkedText> escaped(Runtime& runtime, const Value& value) {
  DLLM_TRY(MarkedText text, runtime.str(value));
  if (value.safe()) return text;
  MarkedText out = escape_html(text);
  DLLM_CHECK_OK(runtime.allocate(out.bytes.size()));
  return out;
}

Filter find_text_filter(std::string_view name) {
  static constexpr Named<Filter> kFilters[] = {
      {"trim", trim},
      {"upper", map_filter<upper>},
      {"lower", map_filter<lower>},
      {"capitalize", map_filter<capitalize>},
      {"title", title_words},
      {"string", to_string},
      {"replace", replace_filter},
      {"escape", escape},
      {"e", escape},
      {"forceescape", force_escape},
      {"indent", indent},
      {"center", center},
      {"wordcount", word_count},
      {"tojson", tojson},
      {"format", format_filter},
      {"safe", mark_safe},
  };
  return find_named(kFilters, name);
}

}  // namespace dllm::jinja
