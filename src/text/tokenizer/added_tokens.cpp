#include "text/tokenizer/added_tokens.h"

#include "text/marked_text.h"

namespace dllm {

void AddedTokenMatcher::add(std::string_view text, const Token& token) {
  std::uint32_t node = 0;
  for (const char byte : text) {
    const auto [found, fresh] = edges_.try_emplace(edge(node, byte), static_cast<std::uint32_t>(token_of_node_.size()));
    if (fresh) token_of_node_.push_back(-1);
    node = found->second;
  }
  first_bytes_[static_cast<std::uint8_t>(text.front())] = true;
  token_of_node_[node] = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::find(std::string_view text, std::size_t from,
                                                                bool parse_special, std::string_view marks) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!first_bytes_[static_cast<std::uint8_t>(text[begin])]) continue;
    std::optional<Match> longest;
    std::uint32_t node = 0;
    bool control = parse_special;
    for (std::size_t i = begin; i < text.size(); ++i) {
      control = control && (marks.empty() || marks[i] != MarkedText::kContent);
      const auto next = edges_.find(edge(node, text[i]));
      if (next == edges_.end()) break;
      node = next->second;
      if (token_of_node_[node] < 0) continue;
      const Token& token = tokens_[static_cast<std::size_t>(token_of_node_[node])];
      if (!token.control || control) longest = Match{begin, i + 1, &token};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace dllm
