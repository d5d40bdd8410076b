#include "eval/answer_text.h"

#include <algorithm>
#include <cctype>

namespace dllm {
namespace {

constexpr std::string_view kSpace = " \t\r\n\v\f";

bool digit(char c) { return c >= '0' && c <= '9'; }
bool number_part(char c) { return digit(c) || c == '$' || c == '.' || c == ','; }

std::string without_marks(std::string_view number) {
  std::string result;
  for (const char c : number)
    if (c != ',' && c != '$') result += c;
  if (!result.empty() && result.back() == '.') result.pop_back();
  return result;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

std::string_view strip_end(std::string_view text) {
  const auto last = text.find_last_not_of(kSpace);
  return last == std::string_view::npos ? std::string_view() : text.substr(0, last + 1);
}

std::string_view strip(std::string_view text) {
  const auto first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos ? std::string_view() : strip_end(text.substr(first));
}

bool exact_match(std::string_view text, std::string_view answer) { return strip_end(text) == strip_end(answer); }

std::optional<std::string> last_number(std::string_view text) {
  std::optional<std::string> found;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && number_part(text[end])) ++end;
    const std::size_t length = end - i;
    if (length >= 2 || (length == 1 && digit(text[i]))) {
      const bool negative = i > 0 && text[i - 1] == '-';
      found = without_marks(text.substr(negative ? i - 1 : i, length + (negative ? 1 : 0)));
    }
    i = std::max(end, i + 1);
  }
  return found;
}

std::optional<std::string> marked_number(std::string_view text) {
  for (std::size_t at = text.find("#### "); at != std::string_view::npos; at = text.find("#### ", at + 1)) {
    const std::size_t begin = at + 5;
    std::size_t end = begin < text.size() && text[begin] == '-' ? begin + 1 : begin;
    const std::size_t digits = end;
    while (end < text.size() && (digit(text[end]) || text[end] == '.' || text[end] == ',')) ++end;
    if (end > digits) return without_marks(text.substr(begin, end - begin));
  }
  return std::nullopt;
}

std::string_view before(std::string_view text, const std::vector<std::string_view>& stops) {
  for (const std::string_view stop : stops) text = text.substr(0, text.find(stop));
  return text;
}

std::optional<std::string> code_block(std::string_view text) {
  const auto fence = text.find("```");
  if (fence == std::string_view::npos) return std::nullopt;
  const auto line = text.find('\n', fence);
  if (line == std::string_view::npos) return std::nullopt;
  const auto close = text.find("```", line + 1);
  return std::string(text.substr(line + 1, close == std::string_view::npos ? close : close - line - 1));
}

int first_option(std::string_view text, const std::vector<std::string>& options) {
  const std::string where = lower(text);
  std::size_t best = std::string::npos;
  int found = -1;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const std::size_t at = where.find(lower(options[i]));
    if (at == std::string::npos || at > best) continue;
    if (at == best && options[i].size() <= options[static_cast<std::size_t>(found)].size()) continue;
    best = at;
    found = static_cast<int>(i);
  }
  return found;
}

}  // namespace dllm
