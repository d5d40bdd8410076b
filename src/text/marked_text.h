#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dllm {

/// A text that records which of its bytes are content (written by people and models) and which are markup (written by a
/// chat template). Only markup may become control tokens.
struct MarkedText {
  std::string bytes;
  /// Empty: no byte is content. Otherwise as long as `bytes`, kContent or kMarkup for each.
  std::string marks;

  static constexpr char kMarkup = '\0', kContent = '\1';

  static MarkedText content(std::string text) {
    std::string marks(text.size(), kContent);
    return {std::move(text), std::move(marks)};
  }

  char mark_at(std::size_t i) const { return marks.empty() ? kMarkup : marks[i]; }

  void append(std::string_view markup) { append(markup, kMarkup); }
  void append(std::string_view text, char mark) {
    if (mark != kMarkup && marks.size() < bytes.size()) marks.resize(bytes.size(), kMarkup);
    if (mark != kMarkup || !marks.empty()) marks.append(text.size(), mark);
    bytes += text;
  }
  void append(const MarkedText& other) { append_part(other, 0, other.bytes.size()); }
  /// Bytes `begin` to `begin + size` of `other`.
  void append_part(const MarkedText& other, std::size_t begin, std::size_t size) {
    const std::string_view part = std::string_view(other.bytes).substr(begin, size);
    if (other.marks.empty()) return append(part);
    marks.resize(bytes.size(), kMarkup);
    marks += std::string_view(other.marks).substr(begin, size);
    bytes += part;
  }

  /// `view` must be a part of `bytes`.
  MarkedText part(std::string_view view) const {
    MarkedText result{std::string(view), {}};
    if (!marks.empty()) result.marks = marks.substr(static_cast<std::size_t>(view.data() - bytes.data()), view.size());
    return result;
  }
};

}  // namespace dllm
