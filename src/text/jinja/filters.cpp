#include "text/jinja/filters.h"

#include <fmt/format.h>

#include <charconv>

#include "base/try.h"
#include "text/jinja/strings.h"
#include "text/utf8.h"

namespace dllm::jinja {

Expected<std::int64_t> FilterCall::integer_or(std::size_t index, std::string_view parameter,
                                              std::int64_t otherwise) const {
  const Value* value = find(index, parameter);
  if (value == nullptr) return otherwise;
  if (!value->integer_like()) {
    return type_error(fmt::format("'{}' of {} must be an integer, not {}", parameter, name, value->type_name()));
  }
  return value->as_integer();
}

bool FilterCall::flag_or(std::size_t index, std::string_view parameter, bool otherwise) const {
  const Value* value = find(index, parameter);
  return value != nullptr ? value->truthy() : otherwise;
}

Expected<MarkedText> FilterCall::text_or(std::size_t index, std::string_view parameter, std::string otherwise) const {
  const Value* value = find(index, parameter);
  if (value == nullptr) return MarkedText{std::move(otherwise), {}};
  return runtime.str(*value);
}

Expected<Value> attribute_path(Runtime& runtime, const Value& object, const Value& path) {
  const std::string* text = path.text();
  if (text == nullptr) return get_item(runtime, object, path);
  Value current = object;
  for (const std::string_view part : split(*text, ".", -1)) {
    DLLM_CHECK_OK(runtime.step());
    std::int64_t index = 0;
    const auto [end, code] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool numeric = code == std::errc() && end == part.data() + part.size() && !part.starts_with('-');
    DLLM_TRY(current, get_item(runtime, current, numeric ? Value(index) : Value(std::string(part))));
  }
  return current;
}

Expected<Value> apply_filter(Runtime& runtime, const std::string& name, const Value& input,
                             const Arguments& arguments) {
  DLLM_CHECK_OK(runtime.scan(input));
  for (const auto find : {find_text_filter, find_number_filter, find_sequence_filter, find_selection_filter}) {
    if (const Filter filter = find(name)) return filter({runtime, name, input, arguments});
  }
  return Error{ErrorCode::kUnsupported, fmt::format("the filter '{}'", replace_invalid_utf8(name)), "", ""};
}

}  // namespace dllm::jinja
