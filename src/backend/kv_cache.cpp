#include "backend/kv_cache.h"

#include <algorithm>
#include <cassert>

#include "backend/position_ranges.h"

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

void KvCache::copy_rows(const KvCache&, std::span<const Position>) {
  assert(false && "this kind of cache is of no second path");
}

bool KvCache::take(const KvCache&, std::span<const PositionRange>) {
  assert(false && "this kind of cache has no branches");
  return false;
}

void KvCache::follow(const KvCache& parent, std::span<const PlanRow> pending) {
  assert(parent.capacity() == capacity() && &parent != this);
  entries_ = parent.entries_;
  epoch_ = parent.epoch_;
  if (!pending.empty()) record(pending);
  parent_ = &parent;
  own_.assign(entries_.size(), 0);
  followed(parent, pending);
}

bool KvCache::can_adopt(const KvCache& branch) const {
  const KvCache* between = branch.parent_;
  while (between != nullptr && between != this && std::ranges::count(between->own_, 0) == capacity())
    between = between->parent_;
  return between == this;
}

void KvCache::adopt(KvCache& branch) {
  assert(can_adopt(branch));
  std::vector<PositionRange> rows;
  for (Position p = 0; p < capacity(); ++p) {
    if (branch.own_[static_cast<std::size_t>(p)] == 0) continue;
    append(rows, p);
    if (parent_ != nullptr) own_[static_cast<std::size_t>(p)] = 1;
  }
  const bool taken = take(branch, rows);
  entries_ = branch.entries_;
  epoch_ = branch.epoch_;
  branch.own_.assign(entries_.size(), 0);
  if (taken) return;
  for (const PositionRange& range : rows) {
    invalidate(range);
    branch.invalidate(range);  // which shows this cache's rows now
  }
}

const KvCache& KvCache::holder(Position position) const {
  const KvCache* cache = this;
  while (cache->parent_ != nullptr && cache->own_[static_cast<std::size_t>(position)] == 0) cache = cache->parent_;
  return *cache;
}

void KvCache::invalidate(PositionRange range) {
  std::fill(entries_.begin() + range.begin, entries_.begin() + range.end, Entry{});
}

void KvCache::record(std::span<const PlanRow> rows) {
  ++epoch_;
  for (const PlanRow& row : rows) {
    if (parent_ != nullptr) own_[static_cast<std::size_t>(row.position)] = 1;
    Entry& entry = entries_[static_cast<std::size_t>(row.position)];
    const bool same = entry.epoch != 0 && entry.token == row.token;
    entry = {epoch_, row.token, same ? entry.same_since : epoch_};
  }
}

}  // namespace dllm
