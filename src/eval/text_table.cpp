#include "eval/text_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace dllm {
namespace {

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width, bool left) {
  const std::string space(width - std::min(width, characters(text)), ' ');
  return left ? text + space : space + text;
}

std::vector<std::size_t> widths(const TextTable& table) {
  std::vector<std::size_t> result;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    result.push_back(std::max<std::size_t>(3, characters(table.columns[c].title)));
    for (const auto& row : table.rows) result.back() = std::max(result.back(), characters(row[c]));
  }
  return result;
}

template <class Cell>
std::string joined(std::size_t count, std::string_view left, std::string_view middle, std::string_view right,
                   const Cell& cell) {
  std::string line(left);
  for (std::size_t c = 0; c < count; ++c) line += (c == 0 ? std::string() : std::string(middle)) + cell(c);
  return line + std::string(right) + "\n";
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) result += c == '"' ? std::string("\"\"") : std::string(1, c);
  return result + "\"";
}

}  // namespace

std::string TextTable::aligned() const {
  const auto width = widths(*this);
  std::string text = joined(columns.size(), "", "  ", "",
                            [&](std::size_t c) { return padded(columns[c].title, width[c], columns[c].left); });
  for (const auto& row : rows)
    text +=
        joined(columns.size(), "", "  ", "", [&](std::size_t c) { return padded(row[c], width[c], columns[c].left); });
  return text;
}

std::string TextTable::markdown() const {
  const auto width = widths(*this);
  std::string text = joined(columns.size(), "| ", " | ", " |",
                            [&](std::size_t c) { return padded(columns[c].title, width[c], columns[c].left); });
  text += joined(columns.size(), "|", "|", "|",
                 [&](std::size_t c) { return std::string(width[c] + 1, '-') + (columns[c].left ? "-" : ":"); });
  for (const auto& row : rows)
    text += joined(columns.size(), "| ", " | ", " |",
                   [&](std::size_t c) { return padded(row[c], width[c], columns[c].left); });
  return text;
}

std::string TextTable::csv() const {
  std::string text = joined(columns.size(), "", ",", "", [&](std::size_t c) { return csv_cell(columns[c].title); });
  for (const auto& row : rows)
    text += joined(columns.size(), "", ",", "", [&](std::size_t c) { return csv_cell(row[c]); });
  return text;
}

}  // namespace dllm
