#include "npu_core/assembler/expander.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/try.h"

namespace dllm::npu {
namespace {

constexpr int kMaxDepth = 32;
constexpr std::size_t kMaxLineLength = 4096;

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

/// The first word of a line, the rest, and the columns of both.
struct Words {
  std::string_view first, rest;
  std::size_t column = 0, rest_column = 0;
};

Words first_word(std::string_view line) {
  Words words;
  words.column = std::min(line.find_first_not_of(kBlanks), line.size());
  const std::size_t end = std::min(line.find_first_of(kBlanks, words.column), line.size());
  words.first = line.substr(words.column, end - words.column);
  words.rest_column = std::min(line.find_first_not_of(kBlanks, end), line.size());
  words.rest = trim(line.substr(words.rest_column));
  return words;
}

/// Replaces `\name`; an unknown name stays, and is reported when the line is read.
std::string substitute(std::string_view text, const std::map<std::string, std::string, std::less<>>& values) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '\\') {
      result += text[i++];
      continue;
    }
    std::size_t end = i + 1;
    if (end < text.size() && text[end] == '@') {
      ++end;
    } else {
      while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) ++end;
    }
    const auto found = values.find(text.substr(i + 1, end - i - 1));
    result += found != values.end() ? found->second : std::string(text.substr(i, end - i));
    i = end;
  }
  return result;
}

}  // namespace

std::string_view without_comment(std::string_view line) {
  line = line.substr(0, std::min({line.find(';'), line.find("//"), line.find('#'), line.size()}));
  const std::size_t last = line.find_last_not_of(kBlanks);
  return last == std::string_view::npos ? std::string_view{} : line.substr(0, last + 1);
}

std::vector<Part> split_operands(std::string_view text) {
  std::vector<Part> parts;
  if (trim(text).empty()) return parts;
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (c != ',' || (depth > 0 && i < text.size())) continue;
    const std::string_view part = text.substr(start, i - start);
    const std::size_t blank = std::min(part.find_first_not_of(kBlanks), part.size());
    parts.push_back({trim(part), start + blank});
    start = i + 1;
  }
  return parts;
}

Error Expander::error(const SourceLine& line, std::size_t column, std::string what, std::string hint) const {
  std::string where = fmt::format("{}:{}:{}", file_, line.line, column + 1);
  if (line.invoked != 0 && line.invoked != line.line) where += fmt::format(" (expanded from line {})", line.invoked);
  return {ErrorCode::kInvalidFile, std::move(what), std::move(where), std::move(hint)};
}

Expected<std::int64_t> Expander::value(const SourceLine& line, std::size_t column, std::string_view text) const {
  const ExpressionResult result = evaluate(text, constants_);
  if (result.ok()) return result.value;
  return error(line, column + result.error.offset, result.error.what);
}

Error Expander::too_long(const SourceLine& line, std::size_t column) {
  stopped_ = true;
  return error(line, column, fmt::format("the program expands to more than {} lines", max_lines_),
               "use hardware loops instead of .rep");
}

void Expander::report(Error error) {
  if (!report_(std::move(error))) stopped_ = true;
}

void Expander::run(std::string_view text) {
  Lines lines;
  std::uint32_t number = 0;
  while (!text.empty() && !stopped_) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    SourceLine line{std::string(without_comment(text.substr(0, end))), ++number, 0};
    if (end > kMaxLineLength)
      report(error(line, kMaxLineLength, fmt::format("the line is longer than {}", kMaxLineLength)));
    else if (!line.text.empty())
      lines.push_back(std::move(line));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  expand(lines, 0);
}

Expected<std::size_t> Expander::block_end(const Lines& lines, std::size_t start, std::string_view open,
                                          std::string_view close) {
  int depth = 0;
  for (std::size_t i = start; i < lines.size(); ++i) {
    const std::string_view word = first_word(lines[i].text).first;
    if (word == open) ++depth;
    if (word == close && --depth == 0) return i;
  }
  stopped_ = true;
  return error(lines[start], first_word(lines[start].text).column, fmt::format("{} without {}", open, close));
}

void Expander::expand(const Lines& lines, int depth) {
  if (depth > kMaxDepth) {
    stopped_ = true;
    return report(error(lines.front(), 0, "macros and repetitions nest too deeply", "does a macro call itself?"));
  }
  for (std::size_t i = 0; i < lines.size() && !stopped_; ++i)
    if (Expected<void> done = statement(lines, i, depth); !done) report(std::move(done).error());
}

Expected<void> Expander::statement(const Lines& lines, std::size_t& at, int depth) {
  const SourceLine& line = lines[at];
  const Words words = first_word(line.text);
  if (words.first == ".const" || words.first == ".define") return define_constant(line, words.rest, words.rest_column);
  if (words.first == ".assert") {
    DLLM_TRY(const std::int64_t holds, value(line, words.rest_column, words.rest));
    if (holds == 0) return error(line, words.rest_column, fmt::format("assertion failed: {}", words.rest));
    return {};
  }
  if (words.first == ".macro" || words.first == ".rep") {
    const bool macro = words.first == ".macro";
    DLLM_TRY(const std::size_t end, block_end(lines, at, words.first, macro ? ".endm" : ".endr"));
    const std::size_t start = std::exchange(at, end);
    return macro ? define_macro(lines, start, end) : repeat(lines, start, end, depth);
  }
  if (words.first == ".endm" || words.first == ".endr")
    return error(line, words.column, fmt::format("{} closes nothing", words.first));
  if (const auto macro = macros_.find(words.first); macro != macros_.end())
    return call(macro->second, macro->first, line, words.rest, words.rest_column, depth);
  if (++emitted_ > max_lines_) return too_long(line, words.column);
  return sink_(line);
}

Expected<void> Expander::define_constant(const SourceLine& line, std::string_view rest, std::size_t column) {
  const std::size_t end = std::min(rest.find_first_of(" \t=,"), rest.size());
  const std::string_view name = rest.substr(0, end);
  if (!is_identifier(name)) return error(line, column, "expected .const NAME = VALUE");
  std::size_t start = std::min(rest.find_first_not_of(kBlanks, end), rest.size());
  if (start < rest.size() && (rest[start] == '=' || rest[start] == ',')) ++start;
  DLLM_TRY(const std::int64_t number, value(line, column + start, rest.substr(start)));
  if (!constants_.emplace(name, number).second)
    return error(line, column, fmt::format("constant '{}' is defined twice", name));
  return {};
}

Expected<void> Expander::define_macro(const Lines& lines, std::size_t start, std::size_t end) {
  const Words words = first_word(lines[start].text);
  const std::size_t stop = std::min(words.rest.find_first_of(kBlanks), words.rest.size());
  const std::string name(words.rest.substr(0, stop));
  if (!is_identifier(name)) return error(lines[start], words.rest_column, "expected .macro NAME [PARAMETER, ...]");
  Macro macro;
  for (const Part& part : split_operands(words.rest.substr(stop))) {
    if (!is_identifier(part.text))
      return error(lines[start], words.rest_column + stop + part.offset,
                   fmt::format("'{}' is not a valid parameter name", part.text));
    macro.parameters.emplace_back(part.text);
  }
  macro.body.assign(lines.begin() + static_cast<std::ptrdiff_t>(start) + 1,
                    lines.begin() + static_cast<std::ptrdiff_t>(end));
  if (!macros_.emplace(name, std::move(macro)).second)
    return error(lines[start], words.rest_column, fmt::format("macro '{}' is defined twice", name));
  return {};
}

Expected<void> Expander::repeat(const Lines& lines, std::size_t start, std::size_t end, int depth) {
  const SourceLine& head = lines[start];
  const Words words = first_word(head.text);
  const std::vector<Part> parts = split_operands(words.rest);
  if (parts.empty() || parts.size() > 2 || (parts.size() == 2 && !is_identifier(parts[1].text)))
    return error(head, words.rest_column, "expected .rep COUNT [, NAME]");
  DLLM_TRY(const std::int64_t count, value(head, words.rest_column + parts[0].offset, parts[0].text));
  if (count < 0) return error(head, words.rest_column, fmt::format("the count is {}", count));
  if (end == start + 1) return {};
  // Every repetition counts as a line, so that a huge count is refused before the first one, whatever the body.
  if (static_cast<std::uint64_t>(count) > max_lines_ - std::min(emitted_, max_lines_))
    return too_long(head, words.rest_column);
  std::map<std::string, std::string, std::less<>> values;
  for (std::int64_t trip = 0; trip < count && !stopped_; ++trip) {
    ++emitted_;
    if (parts.size() == 2) values[std::string(parts[1].text)] = std::to_string(trip);
    Lines body(lines.begin() + static_cast<std::ptrdiff_t>(start) + 1,
               lines.begin() + static_cast<std::ptrdiff_t>(end));
    for (SourceLine& line : body) {
      line.text = substitute(line.text, values);
      if (line.invoked == 0) line.invoked = head.line;
    }
    expand(body, depth + 1);
  }
  return {};
}

Expected<void> Expander::call(const Macro& macro, const std::string& name, const SourceLine& line,
                              std::string_view arguments, std::size_t column, int depth) {
  const std::vector<Part> parts = split_operands(arguments);
  if (parts.size() != macro.parameters.size())
    return error(line, column,
                 fmt::format("macro '{}' takes {} arguments, not {}", name, macro.parameters.size(), parts.size()));
  if (macro.body.empty()) return {};
  std::map<std::string, std::string, std::less<>> values;
  for (std::size_t i = 0; i < parts.size(); ++i) values[macro.parameters[i]] = std::string(parts[i].text);
  values["@"] = std::to_string(calls_++);
  Lines body = macro.body;
  for (SourceLine& inner : body) {
    inner.text = substitute(inner.text, values);
    if (inner.text.size() > kMaxLineLength) return error(line, column, "the expanded line is too long");
    inner.invoked = line.invoked != 0 ? line.invoked : line.line;
  }
  // Macros may double at every level; lines they emit are limited, so expansions that emit nothing must be, too.
  if (++emitted_ > max_lines_) return too_long(line, column);
  expand(body, depth + 1);
  return {};
}

}  // namespace dllm::npu
