#include "text/jinja/strings.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "text/jinja/unicode_case.h"
#include "text/utf8.h"

namespace dllm::jinja {
namespace {

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

// Calls make(out, char, offset) for each character; what it appends to `out` gets the character's mark. Invalid bytes
// are copied.
template <class F>
MarkedText mapped(const MarkedText& text, F make) {
  MarkedText out;
  std::string made;
  std::size_t at = 0;
  each_char(text.bytes, [&](std::string_view bytes, const Utf8Char& c) {
    made.clear();
    if (c.valid) {
      make(made, c.code, at);
    } else {
      made = bytes;
    }
    out.append(made, text.mark_at(at));
    at += bytes.size();
  });
  return out;
}

MarkedText cased(const MarkedText& text, Case to) {
  return mapped(text,
                [&](std::string& out, char32_t code, std::size_t at) { append_cased(out, code, to, text.bytes, at); });
}

utf8proc_category_t category(char32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

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

std::string_view char_at(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0; --index) {
    const Utf8Char c = utf8_at(text, at);
    at += c.valid ? c.size : 1;
  }
  const Utf8Char c = utf8_at(text, at);
  return text.substr(at, c.valid ? c.size : 1);
}

// memmem is linear (two-way string matching), std::string::find is not.
std::optional<std::size_t> find_first(std::string_view text, std::string_view part, std::size_t from) {
  if (from > text.size()) return std::nullopt;
  if (part.empty()) return from;
  const void* const found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::nullopt;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::optional<std::size_t> find_last(std::string_view text, std::string_view part) {
  const std::string turned(text.rbegin(), text.rend()), wanted(part.rbegin(), part.rend());
  const auto found = find_first(turned, wanted);
  if (!found) return std::nullopt;
  return text.size() - *found - part.size();
}

std::string_view strip(std::string_view text, const std::string_view* set, bool left, bool right) {
  std::unordered_set<std::string_view> members;
  if (set != nullptr)
    for (const std::string_view one : chars(*set)) members.insert(one);
  const auto strips = [&](std::string_view bytes, const Utf8Char& c) {
    if (set == nullptr) return c.valid && is_unicode_space(c.code);
    return members.contains(bytes);
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

MarkedText upper(const MarkedText& text) { return cased(text, Case::kUpper); }
MarkedText lower(const MarkedText& text) { return cased(text, Case::kLower); }

MarkedText swap_case(const MarkedText& text) {
  return mapped(text, [&](std::string& out, char32_t code, std::size_t at) {
    if (is_cased(code)) return append_cased(out, code, is_upper(code) ? Case::kLower : Case::kUpper, text.bytes, at);
    append_utf8(out, code);
  });
}

MarkedText capitalize(const MarkedText& text) {
  return mapped(text, [&](std::string& out, char32_t code, std::size_t at) {
    append_cased(out, code, at == 0 ? Case::kTitle : Case::kLower, text.bytes, at);
  });
}

MarkedText title(const MarkedText& text) {
  bool inside = false;
  return mapped(text, [&](std::string& out, char32_t code, std::size_t at) {
    append_cased(out, code, inside ? Case::kLower : Case::kTitle, text.bytes, at);
    inside = is_cased(code);
  });
}

MarkedText title_filter(const MarkedText& text) {
  constexpr std::string_view kSeparators = "-({[<";
  const std::string_view bytes = text.bytes;
  bool inside = false;
  std::size_t word = 0;  // where it begins: Jinja lowers what follows its first character on its own
  return mapped(text, [&](std::string& out, char32_t code, std::size_t at) {
    const bool separates =
        is_unicode_space(code) || (code < 0x80 && kSeparators.find(static_cast<char>(code)) != kSeparators.npos);
    if (!inside) word = at;
    if (separates || !inside) {
      append_cased(out, code, Case::kUpper, bytes, at);
    } else {
      const std::size_t tail = word + utf8_at(bytes, word).size;
      append_cased(out, code, Case::kLower, bytes.substr(tail), at - tail);
    }
    inside = !separates;
  });
}

MarkedText reversed(const MarkedText& text) {
  MarkedText out;
  const auto parts = chars(text.bytes);
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    out.append_part(text, static_cast<std::size_t>(part->data() - text.bytes.data()), part->size());
  }
  return out;
}

MarkedText escape_html(const MarkedText& text) {
  return mapped(text, [](std::string& out, char32_t code, std::size_t) {
    switch (code) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        append_utf8(out, code);
    }
  });
}

MarkedText padded(const MarkedText& text, std::size_t width, bool left, bool right) {
  const std::size_t size = char_count(text.bytes), missing = width > size ? width - size : 0;
  // str.center() puts the odd space to the left if the width is odd.
  const std::size_t before = !left ? 0 : !right ? missing : missing / 2 + (missing & width & 1);
  MarkedText out;
  out.append(std::string(before, ' '));
  out.append(text);
  out.append(std::string(missing - before, ' '));
  return out;
}

namespace {

// Calls f(begin, end) for every occurrence to replace; an empty `from` occurs before every character and at the end.
template <class F>
void each_occurrence(std::string_view text, std::string_view from, long count, F f) {
  std::size_t at = 0;
  while (count != 0 && at <= text.size()) {
    const auto found = find_first(text, from, at);
    if (!found) return;
    f(*found, *found + from.size());
    if (count > 0) --count;
    at = *found + from.size();
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
    out.append_part(text, copied, begin - copied);
    out.append(to);
    copied = end;
  });
  out.append_part(text, copied, bytes.size() - copied);
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
    const auto found = find_first(text, separator, at);
    if (!found) break;
    parts.push_back(text.substr(at, *found - at));
    at = *found + separator.size();
    if (limit > 0) --limit;
  }
  parts.push_back(text.substr(at));
  return parts;
}

namespace {

// The parts of the reversed text, as parts of `text`, from left to right.
std::vector<std::string_view> turned_back(std::string_view text, std::string_view turned,
                                          const std::vector<std::string_view>& parts) {
  std::vector<std::string_view> out;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    const auto begin = static_cast<std::size_t>(part->data() - turned.data());
    out.push_back(text.substr(text.size() - begin - part->size(), part->size()));
  }
  return out;
}

}  // namespace

std::vector<std::string_view> rsplit(std::string_view text, std::string_view separator, long limit) {
  const std::string turned(text.rbegin(), text.rend());
  return turned_back(text, turned, split(turned, std::string(separator.rbegin(), separator.rend()), limit));
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

std::vector<std::string_view> rsplit_space(std::string_view text, long limit) {
  std::vector<std::string_view> parts;
  text = strip(text, nullptr, false, true);
  const auto words = split_space(text, -1);
  const std::size_t taken = limit < 0 ? words.size() : std::min(words.size(), static_cast<std::size_t>(limit));
  if (taken < words.size()) {
    const std::string_view last = words[words.size() - taken - 1];  // with its leading white space, as in Python
    parts.push_back(text.substr(0, static_cast<std::size_t>(last.data() - text.data()) + last.size()));
  }
  parts.insert(parts.end(), words.end() - static_cast<std::ptrdiff_t>(taken), words.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    const bool breaks = c.valid && ((c.code >= 0x0A && c.code <= 0x0D) || (c.code >= 0x1C && c.code <= 0x1E) ||
                                    c.code == 0x85 || c.code == 0x2028 || c.code == 0x2029);
    std::size_t next = i + c.size;
    if (breaks) {
      if (c.code == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(begin, (keep ? next : i) - begin));
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

bool is_numeric(char32_t code) {
  const auto kind = category(code);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

namespace {

bool all_cased(std::string_view text, bool (*wanted)(char32_t)) {
  bool all = true, any = false;
  each_char(text, [&](std::string_view, const Utf8Char& c) {
    if (!c.valid || !is_cased(c.code)) return;
    any = true;
    all = all && wanted(c.code);
  });
  return all && any;
}

}  // namespace

bool is_upper_text(std::string_view text) { return all_cased(text, is_upper); }
bool is_lower_text(std::string_view text) { return all_cased(text, is_lower); }

}  // namespace dllm::jinja
