#include "text/jinja/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/try.h"
#include "text/jinja/strings.h"

namespace dllm::jinja {
namespace {

constexpr std::size_t kMaxWidth = 1000;

struct Spec {
  bool left = false, zero = false;
  std::size_t width = 0;
  int precision = -1;
  char conversion = 0;
};

std::size_t read_size(std::string_view format, std::size_t& at) {
  std::size_t size = 0;
  while (at < format.size() && format[at] >= '0' && format[at] <= '9') {
    size = std::min(kMaxWidth, size * 10 + static_cast<std::size_t>(format[at++] - '0'));
  }
  return size;
}

Expected<Spec> read_spec(std::string_view format, std::size_t& at) {
  Spec spec;
  while (at < format.size() && (format[at] == '-' || format[at] == '0')) {
    (format[at] == '-' ? spec.left : spec.zero) = true;
    ++at;
  }
  spec.width = read_size(format, at);
  if (at < format.size() && format[at] == '.') {
    ++at;
    spec.precision = static_cast<int>(read_size(format, at));
  }
  if (at >= format.size()) return type_error("incomplete format");
  spec.conversion = format[at++];
  return spec;
}

MarkedText pad(MarkedText text, const Spec& spec) {
  const std::size_t size = char_count(text.bytes);
  if (size >= spec.width) return text;
  if (spec.left || !spec.zero) return padded(text, spec.width, !spec.left, spec.left);
  const std::size_t sign = text.bytes.starts_with('-') ? 1 : 0;
  text.bytes.insert(sign, spec.width - size, '0');  // only numbers are padded with zeros, and they are markup
  return text;
}

Expected<MarkedText> convert_text(Runtime& runtime, const Spec& spec, bool safe, const Value& value) {
  MarkedText text;
  if (spec.conversion == 'r') {
    DLLM_TRY(text, to_repr(value, runtime.limits().output));
    if (safe) text = escape_html(text);
  } else if (safe) {
    DLLM_TRY(text, escaped(runtime, value));
  } else {
    DLLM_TRY(text, runtime.str(value));
  }
  if (spec.precision < 0 || char_count(text.bytes) <= static_cast<std::size_t>(spec.precision)) return text;
  const auto all = chars(text.bytes);
  const char* const end = all[static_cast<std::size_t>(spec.precision)].data();
  return text.part(std::string_view(text.bytes).substr(0, static_cast<std::size_t>(end - text.bytes.data())));
}

Expected<MarkedText> convert(Runtime& runtime, Spec spec, bool safe, const Value& value) {
  MarkedText text;
  switch (spec.conversion) {
    case 's':
    case 'r': {
      DLLM_TRY(text, convert_text(runtime, spec, safe, value));
      spec.zero = false;
      break;
    }
    case 'd':
    case 'i':
    case 'x': {
      if (!value.number())
        return type_error(fmt::format("%{} needs a number, not {}", spec.conversion, value.type_name()));
      const double real = value.is<double>() ? std::trunc(value.as_double()) : 0.0;
      if (!(std::fabs(real) < 9.2e18)) return type_error("the number is too large for an integer conversion");
      const std::int64_t number = value.is<double>() ? static_cast<std::int64_t>(real) : value.as_integer();
      text.bytes = spec.conversion == 'x' ? fmt::format("{:x}", number) : fmt::format("{}", number);
      break;
    }
    case 'f':
      if (!value.number()) return type_error(fmt::format("%f needs a number, not {}", value.type_name()));
      text.bytes = fmt::format("{:.{}f}", value.as_double(), spec.precision >= 0 ? spec.precision : 6);
      break;
    default:
      return Error{ErrorCode::kUnsupported, fmt::format("the conversion '%{}'", spec.conversion), "", ""};
  }
  return pad(std::move(text), spec);
}

}  // namespace

Expected<MarkedText> percent_format(Runtime& runtime, const MarkedText& marked, bool safe, const Value& arguments) {
  const std::string_view format = marked.bytes;
  const Sequence* tuple = arguments.sequence();
  const bool many = tuple != nullptr && tuple->kind == SequenceKind::kTuple;
  const std::size_t available = many ? tuple->items.size() : 1;
  std::size_t used = 0;
  MarkedText out;
  for (std::size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      out.append_part(marked, at++, 1);
      continue;
    }
    ++at;
    DLLM_TRY(const Spec spec, read_spec(format, at));
    if (spec.conversion == '%') {
      out.append_part(marked, at - 1, 1);
      continue;
    }
    if (used >= available) return type_error("not enough arguments for format string");
    DLLM_CHECK_OK(runtime.step());
    const Value& value = many ? tuple->items[used] : arguments;
    DLLM_TRY(const MarkedText text, convert(runtime, spec, safe, value));
    ++used;
    DLLM_CHECK_OK(runtime.allocate(text.bytes.size()));
    out.append(text);
  }
  if (used < available && (many || arguments.mapping() == nullptr)) {
    return type_error("not all arguments converted during string formatting");
  }
  return out;
}

namespace {

Expected<const Value*> field(std::string_view name, const Arguments& arguments, std::size_t& next) {
  if (name.empty()) {
    if (next >= arguments.positional.size()) return type_error("format: too few arguments");
    return &arguments.positional[next++];
  }
  std::size_t index = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (code == std::errc() && end == name.data() + name.size()) {
    if (index >= arguments.positional.size()) return type_error("format: too few arguments");
    return &arguments.positional[index];
  }
  if (name.find_first_of(":!.[") != name.npos) {
    return Error{ErrorCode::kUnsupported, fmt::format("the format field '{{{}}}'", name), "", ""};
  }
  for (const auto& [known, value] : arguments.named) {
    if (known == name) return &value;
  }
  return type_error(fmt::format("format: no argument '{}'", name));
}

}  // namespace

Expected<MarkedText> brace_format(Runtime& runtime, const MarkedText& marked, bool safe, const Arguments& arguments) {
  const std::string_view format = marked.bytes;
  MarkedText out;
  std::size_t next = 0;
  for (std::size_t at = 0; at < format.size(); ++at) {
    const char c = format[at];
    if (c != '{' && c != '}') {
      out.append_part(marked, at, 1);
      continue;
    }
    if (at + 1 < format.size() && format[at + 1] == c) {
      out.append_part(marked, at, 1);
      ++at;
      continue;
    }
    const std::size_t end = c == '{' ? format.find('}', at) : format.npos;
    if (end == format.npos) return type_error("format: a single brace");
    DLLM_CHECK_OK(runtime.step(1 + static_cast<std::int64_t>(arguments.named.size() / 16)));
    DLLM_TRY(const Value* value, field(format.substr(at + 1, end - at - 1), arguments, next));
    DLLM_TRY(const MarkedText text, safe ? escaped(runtime, *value) : runtime.str(*value));
    out.append(text);
    at = end;
  }
  return out;
}

}  // namespace dllm::jinja
