#include "engine/prefix_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/integers.h"
#include "base/to_size.h"

namespace dllm {
namespace {

/// Rows of a piece, unless a block is longer: with fewer, short prompts share more; with more, copies are longer.
constexpr Position kPiece = 16;

}  // namespace

struct PrefixStore::Piece {
  Piece* before = nullptr;
  std::vector<TokenId> tokens;
  std::unique_ptr<KvCache> rows;
  std::int64_t bytes = 0;
  Pieces after;
  std::list<Piece*>::iterator used;
};

PrefixStore::PrefixStore(Position block, std::int64_t budget)
    : block_(block), length_(static_cast<Position>(round_up(kPiece, block))), budget_(budget) {}

PrefixStore::~PrefixStore() {
  // From the ends, so that long texts are not freed by recursion.
  while (!used_.empty()) drop(used_.back());
}

Position PrefixStore::read(std::span<const TokenId> tokens, KvCache& cache) {
  Position end = 0;
  Piece* last = nullptr;
  for (const Pieces* pieces = &roots_; tokens.size() - to_size(end) >= to_size(length_); pieces = &last->after) {
    const auto next = tokens.subspan(to_size(end), to_size(length_));
    const auto found = pieces->find({next.begin(), next.end()});
    if (found == pieces->end()) break;
    last = found->second.get();
    cache.copy(*last->rows, {0, length_}, end);
    end += length_;
  }
  use(last);
  ++(end > 0 ? counters_.hits : counters_.misses);
  counters_.cached_tokens += static_cast<std::uint64_t>(end);
  return end;
}

void PrefixStore::keep(Backend& backend, const KvCache& cache, Position end, TokenId mask) {
  if (cache.bytes() == 0) return;
  end = final_rows(cache, block_, end, mask);
  Piece* last = nullptr;
  Pieces* pieces = &roots_;
  bool grows = false;
  for (Position at = 0; at + length_ <= end; at += length_, pieces = &last->after) {
    std::vector<TokenId> tokens;
    for (Position p = at; p < at + length_; ++p) tokens.push_back(cache.token_of(p));
    if (const auto known = pieces->find(tokens); known != pieces->end()) {
      last = known->second.get();
      continue;
    }
    auto rows = backend.make_cache(length_);
    if (!rows) break;
    const std::int64_t bytes = (*rows)->bytes() + 2 * length_ * static_cast<std::int64_t>(sizeof(TokenId));
    if (!std::exchange(grows, true)) use(last);  // what the new pieces continue must not make room for them
    if (!make_room(bytes, last)) break;
    (*rows)->copy(cache, {at, at + length_}, 0);
    auto piece = std::make_unique<Piece>();
    *piece = {.before = last, .tokens = tokens, .rows = *std::move(rows), .bytes = bytes, .after = {}, .used = {}};
    last = pieces->emplace(std::move(tokens), std::move(piece)).first->second.get();
    last->used = used_.insert(last->before != nullptr ? std::next(last->before->used) : used_.begin(), last);
    counters_.bytes += bytes;
    counters_.tokens += length_;
  }
  if (!grows) use(last);
}

/// If every block was written at once and no block before an earlier one, then a block's pass saw what is in the cache
/// now: earlier blocks as they are, and itself.
Position PrefixStore::final_rows(const KvCache& cache, Position block, Position end, TokenId mask) {
  end = std::min(end, cache.capacity());
  std::uint32_t epoch = 1;
  for (Position at = 0; at + block <= end; at += block) {
    if (cache.epoch_of(at) < epoch) return at;
    epoch = cache.epoch_of(at);
    for (Position p = at; p < at + block; ++p)
      if (cache.epoch_of(p) != epoch || cache.token_of(p) == mask) return at;
  }
  return end / block * block;
}

/// Moves a piece and those before it to the front, the first of the text foremost.
void PrefixStore::use(Piece* last) {
  for (; last != nullptr; last = last->before) used_.splice(used_.begin(), used_, last->used);
}

/// False if the budget does not even hold these bytes together with the pieces up to `last`.
bool PrefixStore::make_room(std::int64_t bytes, const Piece* last) {
  while (counters_.bytes + bytes > budget_) {
    if (used_.empty() || used_.back() == last) return false;
    counters_.evicted_tokens += static_cast<std::uint64_t>(length_);
    drop(used_.back());
  }
  return true;
}

/// The piece must be the last of its text.
void PrefixStore::drop(Piece* piece) {
  used_.erase(piece->used);
  counters_.bytes -= piece->bytes;
  counters_.tokens -= length_;
  Pieces& siblings = piece->before != nullptr ? piece->before->after : roots_;
  siblings.erase(siblings.find(piece->tokens));
}

}  // namespace dllm
