#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/try.h"
#include "text/jinja/runtime.h"
#include "text/utf8.h"

namespace dllm::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  Expected<void> write(const Value& value, int depth) {
    DLLM_CHECK_OK(within_limit());
    if (const MarkedText* text = value.marked()) {
      write_text(*text);
    } else if (const Sequence* sequence = value.sequence(); sequence && sequence->kind != SequenceKind::kGenerator) {
      return write_sequence(*sequence, depth);
    } else if (const Mapping* mapping = value.mapping()) {
      return write_mapping(*mapping, depth);
    } else if (value.none()) {
      out.append("null");
    } else if (value.is<bool>()) {
      out.append(*value.get<bool>() ? "true" : "false");
    } else if (value.is<std::int64_t>()) {
      out.append(std::to_string(*value.get<std::int64_t>()));
    } else if (value.is<double>()) {
      out.append(number(*value.get<double>()));
    } else {
      return type_error(fmt::format("Object of type {} is not JSON serializable", value.type_name()));
    }
    return {};
  }

  Expected<void> within_limit() const {
    const std::size_t limit = runtime_.limits().output;
    if (out.bytes.size() > limit) return limit_error(fmt::format("JSON grows beyond {} bytes", limit));
    return {};
  }

  MarkedText out;

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return format_double(value);
  }

  static void append_unit(std::string& shown, unsigned unit) { shown += fmt::format("\\u{:04x}", unit); }

  void append_char(std::string& shown, const Utf8Char& c, std::string_view bytes) const {
    constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    if (!c.valid) {
      append_utf8(shown, 0xFFFD);  // JSON is Unicode text
    } else if (c.code < 0x80 && kEscaped.find(static_cast<char>(c.code)) != kEscaped.npos) {
      shown += '\\';
      shown += kLetters[kEscaped.find(static_cast<char>(c.code))];
    } else if (c.code < 0x20) {
      append_unit(shown, c.code);
    } else if (!style_.ascii || c.code < 0x7F) {
      shown += bytes;
    } else if (c.code < 0x10000) {
      append_unit(shown, c.code);
    } else {
      const unsigned rest = static_cast<unsigned>(c.code) - 0x10000;
      append_unit(shown, 0xD800 + (rest >> 10));
      append_unit(shown, 0xDC00 + (rest & 0x3FF));
    }
  }

  void write_text(const MarkedText& text) {
    out.append("\"");
    std::string shown;
    for (std::size_t i = 0; i < text.bytes.size();) {
      const Utf8Char c = utf8_at(text.bytes, i);
      shown.clear();
      append_char(shown, c, std::string_view(text.bytes).substr(i, c.size));
      out.append(shown, text.mark_at(i));
      i += c.size;
    }
    out.append("\"");
  }

  void separate(bool first, int depth) {
    if (!first) out.append(style_.item_separator);
    newline(depth);
  }

  void newline(int depth) {
    if (style_.indent < 0) return;
    out.append("\n");
    out.append(std::string(static_cast<std::size_t>(style_.indent) * static_cast<std::size_t>(depth), ' '));
  }

  Expected<void> write_sequence(const Sequence& sequence, int depth) {
    if (sequence.items.empty()) {
      out.append("[]");
      return {};
    }
    out.append("[");
    for (std::size_t i = 0; i < sequence.items.size(); ++i) {
      separate(i == 0, depth + 1);
      DLLM_CHECK_OK(write(sequence.items[i], depth + 1));
    }
    newline(depth);
    out.append("]");
    return {};
  }

  // Keys that are not strings become strings, as in json.dumps.
  Expected<void> write_key(const Value& key) {
    if (const MarkedText* text = key.marked()) {
      write_text(*text);
      return {};
    }
    if (!key.none() && !key.number()) {
      return type_error(fmt::format("keys must be str, int, float, bool or None, not {}", key.type_name()));
    }
    out.append("\"");
    DLLM_CHECK_OK(write(key, 0));
    out.append("\"");
    return {};
  }

  Expected<void> write_mapping(const Mapping& mapping, int depth) {
    if (mapping.entries.empty()) {
      out.append("{}");
      return {};
    }
    std::vector<std::size_t> order(mapping.entries.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (style_.sort_keys) {
      std::vector<Value> keys;
      for (const auto& entry : mapping.entries) keys.push_back(entry.first);
      DLLM_TRY(order, sort_order(runtime_, keys, false));
    }
    out.append("{");
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto& [key, item] = mapping.entries[order[i]];
      separate(i == 0, depth + 1);
      DLLM_CHECK_OK(write_key(key));
      out.append(style_.key_separator);
      DLLM_CHECK_OK(write(item, depth + 1));
    }
    newline(depth);
    out.append("}");
    return {};
  }

  Runtime& runtime_;
  const JsonStyle& style_;
};

}  // namespace

Expected<MarkedText> to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  DLLM_CHECK_OK(writer.write(value, 0));
  DLLM_CHECK_OK(writer.within_limit());
  return std::move(writer.out);
}

}  // namespace dllm::jinja
