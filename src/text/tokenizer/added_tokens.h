#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/types.h"

namespace dllm {

/// Finds added tokens in text: leftmost, then longest. A trie, so that a text full of first characters (thousands of
/// '<' and a thousand reserved tokens) takes at most text length times the longest token.
class AddedTokenMatcher {
 public:
  struct Token {
    TokenId id = 0;
    bool control = false;  ///< matched only if the caller parses special tokens
    bool lstrip = false, rstrip = false;
  };
  struct Match {
    std::size_t begin = 0, end = 0;
    const Token* token = nullptr;
  };

  /// `text` must be neither empty nor already added.
  void add(std::string_view text, const Token& token);

  bool empty() const { return tokens_.empty(); }

  /// The first match at or after `from`; control tokens only with `parse_special`, and only if none of their bytes is
  /// content. `marks`: of `text` (see MarkedText), or empty.
  std::optional<Match> find(std::string_view text, std::size_t from, bool parse_special, std::string_view marks) const;

 private:
  static std::uint64_t edge(std::uint32_t node, char byte) {
    return (static_cast<std::uint64_t>(node) << 8) | static_cast<std::uint8_t>(byte);
  }

  std::vector<Token> tokens_;
  std::vector<std::int32_t> token_of_node_{-1};  // node 0 is the root
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;
  bool first_bytes_[256] = {};
};

}  // namespace dllm
