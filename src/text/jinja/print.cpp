#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/try.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"
#include "text/utf8.h"

namespace dllm::jinja {
namespace {

bool printable(char32_t code) {
  if (code == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

void append_repr_char(std::string& out, char32_t code, std::string_view bytes, char quote) {
  if (code == static_cast<unsigned char>(quote) || code == '\\') {
    out += '\\';
    out += static_cast<char>(code);
  } else if (code == '\n') {
    out += "\\n";
  } else if (code == '\r') {
    out += "\\r";
  } else if (code == '\t') {
    out += "\\t";
  } else if (printable(code)) {
    out += bytes;
  } else if (code < 0x100) {
    out += fmt::format("\\x{:02x}", static_cast<unsigned>(code));
  } else if (code < 0x10000) {
    out += fmt::format("\\u{:04x}", static_cast<unsigned>(code));
  } else {
    out += fmt::format("\\U{:08x}", static_cast<unsigned>(code));
  }
}

void append_repr(MarkedText& out, const MarkedText& text) {
  const std::string_view bytes = text.bytes;
  const char quote = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos ? '"' : '\'';
  out.append(std::string_view(&quote, 1));
  std::string shown;
  for (std::size_t i = 0; i < bytes.size();) {
    const Utf8Char c = utf8_at(bytes, i);
    shown.clear();
    if (c.valid) {
      append_repr_char(shown, c.code, bytes.substr(i, c.size), quote);
    } else {
      shown = bytes.substr(i, c.size);
    }
    out.append(shown, text.mark_at(i));
    i += c.size;
  }
  out.append(std::string_view(&quote, 1));
}

Expected<void> within(const MarkedText& out, std::size_t limit) {
  if (out.bytes.size() > limit) return limit_error(fmt::format("a text grows beyond {} bytes", limit));
  return {};
}

// Namespaces can contain themselves, so nesting is counted here too.
class ReprWriter {
 public:
  explicit ReprWriter(std::size_t limit) : limit_(limit) {}

  Expected<void> write(const Value& value, int depth) {
    if (depth > 2 * Value::kMaxDepth) return limit_error("a value is nested too deeply to print");
    DLLM_CHECK_OK(within(out, limit_));
    if (const MarkedText* text = value.marked()) {
      if (value.safe()) out.append("Markup(");
      append_repr(out, *text);
      if (value.safe()) out.append(")");
      return {};
    }
    if (const Sequence* sequence = value.sequence()) return write_sequence(*sequence, depth);
    if (const Mapping* mapping = value.mapping()) return write_entries(mapping->entries, depth);
    if (Namespace* const* ns = value.get<Namespace*>()) {
      out.append("<Namespace ");
      DLLM_CHECK_OK(write_entries((*ns)->attributes.entries, depth));
      out.append(">");
      return {};
    }
    out.append(scalar(value));
    return {};
  }

  MarkedText out;

 private:
  static std::string scalar(const Value& value) {
    if (value.undefined()) return "Undefined";
    if (value.none()) return "None";
    if (value.is<bool>()) return *value.get<bool>() ? "True" : "False";
    if (value.is<std::int64_t>()) return std::to_string(*value.get<std::int64_t>());
    if (value.is<double>()) return format_double(*value.get<double>());
    return fmt::format("<{}>", value.type_name());
  }

  Expected<void> write_sequence(const Sequence& sequence, int depth) {
    const bool tuple = sequence.kind == SequenceKind::kTuple;
    out.append(tuple ? "(" : "[");
    for (std::size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out.append(", ");
      DLLM_CHECK_OK(write(sequence.items[i], depth + 1));
    }
    if (tuple && sequence.items.size() == 1) out.append(",");
    out.append(tuple ? ")" : "]");
    return {};
  }

  Expected<void> write_entries(const std::vector<std::pair<Value, Value>>& entries, int depth) {
    out.append("{");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out.append(", ");
      DLLM_CHECK_OK(write(entries[i].first, depth + 1));
      out.append(": ");
      DLLM_CHECK_OK(write(entries[i].second, depth + 1));
    }
    out.append("}");
    return {};
  }

  std::size_t limit_;
};

}  // namespace

std::string format_double(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // Shortest digits that parse to the same number; Python uses exponents below 1e-4 and from 1e16 on.
  char digits[64];
  const double magnitude = std::fabs(value);
  const bool scientific = magnitude != 0.0 && (magnitude < 1e-4 || magnitude >= 1e16);
  const auto end = std::to_chars(digits, digits + sizeof(digits), value,
                                 scientific ? std::chars_format::scientific : std::chars_format::fixed);
  std::string text(digits, end.ptr);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

Expected<MarkedText> to_repr(const Value& value, std::size_t limit) {
  ReprWriter writer(limit);
  DLLM_CHECK_OK(writer.write(value, 0));
  DLLM_CHECK_OK(within(writer.out, limit));
  return std::move(writer.out);
}

Expected<MarkedText> to_text(const Value& value, std::size_t limit) {
  if (const MarkedText* text = value.marked()) return *text;
  if (value.undefined()) return MarkedText();
  return to_repr(value, limit);
}

}  // namespace dllm::jinja
