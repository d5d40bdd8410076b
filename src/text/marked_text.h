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

  bool has_content() const { return marks.find(kContent) != std::string::npos; }

  void append(std::string_view markup) {
    if (!marks.empty()) marks.append(markup.size(), kMarkup);
    bytes += markup;
  }
  void append(const MarkedText& other) {
    if (other.marks.empty()) return append(std::string_view(other.bytes));
    marks.resize(bytes.size(), kMarkup);
    marks += other.marks;
    bytes += other.bytes;
  }

  /// `view` must be a part of `bytes`.
  MarkedText part(std::string_view view) const {
    MarkedText result{std::string(view), {}};
    if (!marks.empty()) result.marks = marks.substr(static_cast<std::size_t>(view.data() - bytes.data()), view.size());
    return result;
  }
};

}  // namespace dllm
