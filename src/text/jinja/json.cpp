#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/try.h"
#include "text/jinja/value.h"
#include "text/utf8.h"

namespace dllm::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, std::size_t limit) : style_(style), limit_(limit) {}

  Expected<void> write(const Value& value, int depth) {
    if (out.size() > limit_) return limit_error(fmt::format("JSON grows beyond {} bytes", limit_));
    if (const std::string* text = value.text()) {
      write_text(*text);
    } else if (const Sequence* sequence = value.sequence(); sequence && sequence->kind != SequenceKind::kGenerator) {
      return write_sequence(*sequence, depth);
    } else if (const Mapping* mapping = value.mapping()) {
      return write_mapping(*mapping, depth);
    } else if (value.none()) {
      out += "null";
    } else if (value.is<bool>()) {
      out += *value.get<bool>() ? "true" : "false";
    } else if (value.is<std::int64_t>()) {
      out += std::to_string(*value.get<std::int64_t>());
    } else if (value.is<double>()) {
      out += number(*value.get<double>());
    } else {
      return type_error(fmt::format("Object of type {} is not JSON serializable", value.type_name()));
    }
    return {};
  }

  std::string out;

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return format_double(value);
  }

  void write_unit(unsigned unit) { out += fmt::format("\\u{:04x}", unit); }

  void write_char(const Utf8Char& c, std::string_view bytes) {
    switch (c.valid ? c.code : 0xFFFD) {
      case '"':
        out += "\\\"";
        return;
      case '\\':
        out += "\\\\";
        return;
      case '\n':
        out += "\\n";
        return;
      case '\r':
        out += "\\r";
        return;
      case '\t':
        out += "\\t";
        return;
      case '\f':
        out += "\\f";
        return;
      case '\b':
        out += "\\b";
        return;
      default:
        break;
    }
    if (!c.valid) {
      append_utf8(out, 0xFFFD);  // JSON is Unicode text
    } else if (c.code < 0x20) {
      write_unit(c.code);
    } else if (!style_.ascii || c.code < 0x7F) {
      out += bytes;
    } else if (c.code < 0x10000) {
      write_unit(c.code);
    } else {
      const unsigned rest = static_cast<unsigned>(c.code) - 0x10000;
      write_unit(0xD800 + (rest >> 10));
      write_unit(0xDC00 + (rest & 0x3FF));
    }
  }

  void write_text(std::string_view text) {
    out += '"';
    for (std::size_t i = 0; i < text.size();) {
      const Utf8Char c = utf8_at(text, i);
      write_char(c, text.substr(i, c.size));
      i += c.size;
    }
    out += '"';
  }

  void separate(bool first, int depth) {
    if (!first) out += style_.item_separator;
    newline(depth);
  }

  void newline(int depth) {
    if (style_.indent < 0) return;
    out += '\n';
    out.append(static_cast<std::size_t>(style_.indent) * static_cast<std::size_t>(depth), ' ');
  }

  Expected<void> write_sequence(const Sequence& sequence, int depth) {
    if (sequence.items.empty()) {
      out += "[]";
      return {};
    }
    out += '[';
    for (std::size_t i = 0; i < sequence.items.size(); ++i) {
      separate(i == 0, depth + 1);
      DLLM_CHECK_OK(write(sequence.items[i], depth + 1));
    }
    newline(depth);
    out += ']';
    return {};
  }

  // Keys that are not strings become strings, as in json.dumps.
  Expected<void> write_key(const Value& key) {
    if (const std::string* text = key.text()) {
      write_text(*text);
      return {};
    }
    if (!key.none() && !key.number()) {
      return type_error(fmt::format("keys must be str, int, float, bool or None, not {}", key.type_name()));
    }
    out += '"';
    DLLM_CHECK_OK(write(key, 0));
    out += '"';
    return {};
  }

  Expected<void> write_mapping(const Mapping& mapping, int depth) {
    if (mapping.entries.empty()) {
      out += "{}";
      return {};
    }
    std::vector<std::size_t> order(mapping.entries.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (style_.sort_keys) {
      std::vector<Value> keys;
      for (const auto& entry : mapping.entries) keys.push_back(entry.first);
      DLLM_TRY(order, sort_order(keys, false));
    }
    out += '{';
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto& [key, item] = mapping.entries[order[i]];
      separate(i == 0, depth + 1);
      DLLM_CHECK_OK(write_key(key));
      out += style_.key_separator;
      DLLM_CHECK_OK(write(item, depth + 1));
    }
    newline(depth);
    out += '}';
    return {};
  }

  const JsonStyle& style_;
  std::size_t limit_;
};

}  // namespace

Expected<std::string> to_json(const Value& value, const JsonStyle& style, std::size_t limit) {
  JsonWriter writer(style, limit);
  DLLM_CHECK_OK(writer.write(value, 0));
  if (writer.out.size() > limit) return limit_error(fmt::format("JSON grows beyond {} bytes", limit));
  return std::move(writer.out);
}

}  // namespace dllm::jinja
