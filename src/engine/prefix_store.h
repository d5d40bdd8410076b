#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace dllm {

/// Counters since construction, and what is held now.
struct PrefixCounters {
  std::uint64_t hits = 0, misses = 0;  ///< requests that found rows, and those that found none
  std::uint64_t cached_tokens = 0;     ///< positions that were not computed again
  std::uint64_t evicted_tokens = 0;
  std::int64_t bytes = 0;   ///< of rows held, with their tokens
  std::int64_t tokens = 0;  ///< positions held
};

/// K and V of token prefixes, for models in which a position's K and V depend only on earlier tokens and on its own
/// block. Requests with the same prefix then have the same K and V, bit for bit. All of them come from one backend.
///
/// Rows are held in pieces of equal length, each for one continuation of the piece before it, so that prefixes share
/// their common pieces. If the budget is exceeded, the piece that was not used for the longest time is dropped; a piece
/// is used whenever one after it is, so pieces are dropped from the ends of prefixes.
class PrefixStore {
 public:
  /// `block`: positions whose rows see each other (1: causal). `budget`: bytes.
  PrefixStore(Position block, std::int64_t budget);
  ~PrefixStore();

  /// Fills the front of an empty cache with rows of these tokens. Returns their number.
  Position read(std::span<const TokenId> tokens, KvCache& cache);

  /// Holds the front of a cache: its first `end` positions, as far as their rows are final. A row is final if its
  /// block was computed in one pass, after or together with all earlier blocks, and shows no mask (-1: there is none).
  /// Memory that cannot be had is no error: less is held.
  void keep(Backend& backend, const KvCache& cache, Position end, TokenId mask);

  /// How many of the first `end` rows of a cache are final, in the sense of keep().
  static Position final_rows(const KvCache& cache, Position block, Position end, TokenId mask);

  const PrefixCounters& counters() const { return counters_; }

 private:
  struct Piece;
  using Pieces = std::map<std::vector<TokenId>, std::unique_ptr<Piece>>;

  void use(Piece* last);
  bool make_room(std::int64_t bytes, const Piece* last);
  void drop(Piece* piece);

  const Position block_, length_;  ///< of a piece: a multiple of the block
  const std::int64_t budget_;
  Pieces roots_;
  std::list<Piece*> used_;  ///< latest first; a piece comes before those after it in the text
  PrefixCounters counters_;
};

}  // namespace dllm
