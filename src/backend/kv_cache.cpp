#include "backend/kv_cache.h"

#include <algorithm>
#include <cassert>

namespace dllm {

bool KvCache::holds(PositionRange range) const {
  return std::all_of(entries_.begin() + range.begin, entries_.begin() + range.end,
                     [](const Entry& entry) { return entry.epoch != 0; });
}

Position KvCache::matching(std::span<const TokenId> tokens) const {
  const std::size_t most = std::min(tokens.size(), entries_.size());
  std::size_t count = 0;
  while (count < most && entries_[count].epoch != 0 && entries_[count].token == tokens[count]) ++count;
  return static_cast<Position>(count);
}

void KvCache::copy(const KvCache&, PositionRange, Position) {
  assert(false && "this kind of cache gives no rows away");
}

void KvCache::invalidate(PositionRange range) {
  std::fill(entries_.begin() + range.begin, entries_.begin() + range.end, Entry{});
}

void KvCache::record(std::span<const PlanRow> rows) {
  ++epoch_;
  for (const PlanRow& row : rows) {
    Entry& entry = entries_[static_cast<std::size_t>(row.position)];
    const bool same = entry.epoch != 0 && entry.token == row.token;
    entry = {epoch_, row.token, same ? entry.same_since : epoch_};
  }
}

}  // namespace dllm
