#include "text/jinja/strings.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/utf8.h"

namespace dllm::jinja {
namespace {

enum class Case { kUpper, kLower, kTitle };

void append_cased(std::string& out, std::string_view bytes, const Utf8Char& c, Case to) {
  if (!c.valid) {
    out += bytes;
  } else if (c.code == 0xDF && to != Case::kLower) {  // sharp s has no single capital in Python
    out += to == Case::kUpper ? "SS" : "Ss";
  } else {
    const auto code = static_cast<utf8proc_int32_t>(c.code);
    const utf8proc_int32_t cased = to == Case::kUpper   ? utf8proc_toupper(code)
                                   : to == Case::kLower ? utf8proc_tolower(code)
                                                        : utf8proc_totitle(code);
    append_utf8(out, static_cast<char32_t>(cased));
  }
}

// Calls f(bytes, char) for each character.
template <class F>
void each_char(std::string_view text, F f) {
  for (std::size_t i = 0; i < text.size();) {
    Utf8Char c = utf8_at(text, i);
    if (!c.valid) c.size = 1;
    f(text.substr(i, c.size), c);
    i += c.size;
  }
}

std::string cased(std::string_view text, Case to) {
  std::string out;
  each_char(text, [&](std::string_view bytes, const Utf8Char& c) { append_cased(out, bytes, c, to); });
  return out;
}

utf8proc_category_t category(char32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

bool is_cased(char32_t code) {
  const auto kind = category(code);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT;
}

}  // namespace

std::vector<std::string_view> chars(std::string_view text) {
  std::vector<std::string_view> out;
  each_char(text, [&](std::string_view bytes, const Utf8Char&) { out.push_back(bytes); });
  return out;
}

std::size_t char_count(std::string_view text) {
  std::size_t count = 0;
  each_char(text, [&](std::string_view, const Utf8Char&) { ++count; });
  return count;
}

std::string_view strip(std::string_view text, const std::string_view* set, bool left, bool right) {
  const std::vector<std::string_view> members = set != nullptr ? chars(*set) : std::vector<std::string_view>();
  const auto strips = [&](std::string_view bytes, const Utf8Char& c) {
    if (set == nullptr) return c.valid && is_unicode_space(c.code);
    return std::ranges::find(members, bytes) != members.end();
  };
  while (left && !text.empty()) {
    Utf8Char c = utf8_at(text, 0);
    if (!c.valid) c.size = 1;
    if (!strips(text.substr(0, c.size), c)) break;
    text.remove_prefix(c.size);
  }
  while (right && !text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && text.size() - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    Utf8Char c = utf8_at(text, at);
    if (!c.valid || at + c.size != text.size()) {
      at = text.size() - 1;
      c = {};
    }
    if (!strips(text.substr(at), c)) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

std::string upper(std::string_view text) { return cased(text, Case::kUpper); }
std::string lower(std::string_view text) { return cased(text, Case::kLower); }

std::string capitalize(std::string_view text) {
  std::string out;
  bool first = true;
  each_char(text, [&](std::string_view bytes, const Utf8Char& c) {
    append_cased(out, bytes, c, first ? Case::kTitle : Case::kLower);
    first = false;
  });
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool inside = false;
  each_char(text, [&](std::string_view bytes, const Utf8Char& c) {
    append_cased(out, bytes, c, inside ? Case::kLower : Case::kTitle);
    inside = c.valid && is_cased(c.code);
  });
  return out;
}

std::string title_filter(std::string_view text) {
  std::string out;
  bool first = true;
  each_char(text, [&](std::string_view bytes, const Utf8Char& c) {
    const bool separates =
        c.valid &&
        (is_unicode_space(c.code) ||
         (c.code < 0x80 && std::string_view("-({[<").find(static_cast<char>(c.code)) != std::string_view::npos));
    append_cased(out, bytes, c, first ? Case::kUpper : Case::kLower);
    first = separates;
  });
  return out;
}

namespace {

// Calls f(begin, end) for every occurrence to replace; an empty `from` occurs before every character and at the end.
template <class F>
void each_occurrence(std::string_view text, std::string_view from, long count, F f) {
  std::size_t at = 0;
  while (count != 0 && at <= text.size()) {
    const std::size_t found = text.find(from, at);
    if (found == text.npos) return;
    f(found, found + from.size());
    if (count > 0) --count;
    at = found + from.size();
    if (!from.empty()) continue;
    if (at == text.size()) return;
    const Utf8Char c = utf8_at(text, at);
    at += c.valid ? c.size : 1;
  }
}

}  // namespace

MarkedText replace(const MarkedText& text, std::string_view from, const MarkedText& to, long count) {
  MarkedText out;
  std::size_t copied = 0;
  const std::string_view bytes = text.bytes;
  each_occurrence(bytes, from, count, [&](std::size_t begin, std::size_t end) {
    out.append(text.part(bytes.substr(copied, begin - copied)));
    out.append(to);
    copied = end;
  });
  out.append(text.part(bytes.substr(copied)));
  return out;
}

std::size_t replaced_size(std::string_view text, std::string_view from, std::string_view to, long count) {
  std::size_t size = text.size();
  each_occurrence(text, from, count, [&](std::size_t, std::size_t) { size += to.size() - from.size(); });
  return size;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator, long limit) {
  std::vector<std::string_view> parts;
  std::size_t at = 0;
  while (limit != 0) {
    const std::size_t found = text.find(separator, at);
    if (found == text.npos) break;
    parts.push_back(text.substr(at, found - at));
    at = found + separator.size();
    if (limit > 0) --limit;
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::vector<std::string_view> rsplit(std::string_view text, std::string_view separator, long limit) {
  std::vector<std::string_view> parts;
  while (limit != 0 && text.size() >= separator.size()) {
    const std::size_t found = text.rfind(separator);
    if (found == text.npos) break;
    parts.push_back(text.substr(found + separator.size()));
    text = text.substr(0, found);
    if (limit > 0) --limit;
  }
  parts.push_back(text);
  std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> split_space(std::string_view text, long limit) {
  std::vector<std::string_view> parts;
  text = strip(text, nullptr, true, false);
  while (!text.empty()) {
    if (limit == 0) {
      parts.push_back(text);  // with its trailing white space, as in Python
      break;
    }
    std::size_t end = 0;
    while (end < text.size()) {
      const Utf8Char c = utf8_at(text, end);
      if (c.valid && is_unicode_space(c.code)) break;
      end += c.size;
    }
    parts.push_back(text.substr(0, end));
    text = strip(text.substr(end), nullptr, true, false);
    if (limit > 0) --limit;
  }
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    const bool breaks = c.valid && ((c.code >= 0x0A && c.code <= 0x0D) || (c.code >= 0x1C && c.code <= 0x1E) ||
                                    c.code == 0x85 || c.code == 0x2028 || c.code == 0x2029);
    std::size_t next = i + c.size;
    if (breaks) {
      lines.push_back(text.substr(begin, i - begin));
      if (c.code == '\r' && next < text.size() && text[next] == '\n') ++next;
      begin = next;
    }
    i = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

bool all_chars(std::string_view text, bool (*predicate)(char32_t)) {
  bool all = !text.empty();
  each_char(text, [&](std::string_view, const Utf8Char& c) { all = all && c.valid && predicate(c.code); });
  return all;
}

bool is_letter(char32_t code) {
  const auto kind = category(code);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t code) { return category(code) == UTF8PROC_CATEGORY_ND; }

bool is_upper(std::string_view text) { return upper(text) == text && lower(text) != text; }
bool is_lower(std::string_view text) { return lower(text) == text && upper(text) != text; }

}  // namespace dllm::jinja
