#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/types.h"
#include "dllm/error.h"

namespace dllm {

using TokenIndex = std::unordered_map<std::string, TokenId>;

/// Byte-pair encoding of one word: starts with one token per byte, or per character, and repeatedly applies the merge
/// of the lowest rank, leftmost first.
class Bpe {
 public:
  /// What stands for bytes without a token.
  struct Unknown {
    std::optional<TokenId> id;  ///< empty: nothing; then its neighbours are neighbours
    bool fuse = false;          ///< one for a run of such bytes
  };
  /// `index`: id by text (byte alphabet). Errors (kInvalidFile): a malformed merge; a merge whose parts or result are
  /// not in the index.
  static Expected<Bpe> create(const TokenIndex& index, const std::vector<std::string>& merges, Unknown unknown);
  /// Over characters: those in the index are their own tokens, the bytes of others are <0x00> to <0xFF>.
  static Expected<Bpe> over_characters(const TokenIndex& index, const std::vector<std::string>& merges);

  /// Appends the ids of `word` (raw bytes). O(n log n): words of any length are safe. `word` < 2 GiB.
  void encode(std::string_view word, std::vector<TokenId>& out) const;

  /// Bytes without a token, ascending.
  std::string missing_bytes() const;

 private:
  struct Merge {
    std::int32_t rank;
    TokenId result;
  };
  struct Symbol {
    TokenId id;  // -1: merged into its left neighbour
    std::int32_t previous, next;
  };
  struct Candidate {
    std::int32_t rank;
    std::int32_t left;
    TokenId left_id, right_id;  // stale if the symbols have changed
  };

  Expected<void> add_merges(const TokenIndex& index, const std::vector<std::string>& merges);
  void split_bytes(std::string_view word, std::vector<TokenId>& ids) const;
  void split_characters(std::string_view word, std::vector<TokenId>& ids) const;
  const Merge* find(TokenId left, TokenId right) const;
  void propose(const std::vector<Symbol>& symbols, std::int32_t left, std::vector<Candidate>& heap) const;

  std::array<TokenId, 256> byte_ids_{};  ///< -1: none
  Unknown unknown_;
  TokenIndex characters_;  ///< tokens of one character; empty if words are bytes
  bool by_character_ = false;
  std::unordered_map<std::uint64_t, Merge> merges_;  // by (left id, right id)
};

}  // namespace dllm
