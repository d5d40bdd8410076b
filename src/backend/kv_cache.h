#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/step_plan.h"
#include "base/types.h"

namespace dllm {

/// K/V rows of one sequence, indexed by position and written in place. The base class records what policies need: from
/// which token, and in which forward pass (epoch), each row was computed. The storage belongs to the backend.
///
/// A cache may be a *branch* of another one of the same backend (Backend::runs_branches()): it shows that cache's rows
/// until a pass on the branch writes its own, which nobody else sees. So variants of a sequence share what they have in
/// common. A branch may have branches.
class KvCache {
 public:
  virtual ~KvCache() = default;
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  Position capacity() const { return static_cast<Position>(entries_.size()); }
  /// Number of forward passes that have written to this cache.
  std::uint32_t epoch() const { return epoch_; }
  /// Forward pass (1-based) that wrote the row; 0: the row is empty.
  std::uint32_t epoch_of(Position position) const { return entry(position).epoch; }
  /// The token that the row was computed from; -1: the row is empty.
  TokenId token_of(Position position) const { return entry(position).token; }
  /// The earliest pass since which every pass that wrote the row read this token; 0: the row is empty. The row settles
  /// from then on, while its neighbours may still change.
  std::uint32_t same_since(Position position) const { return entry(position).same_since; }
  bool holds(Position position) const { return entry(position).epoch != 0; }
  /// Whether no row of the range is empty.
  bool holds(PositionRange range) const;
  /// Rows at the front that were computed from these tokens.
  Position matching(std::span<const TokenId> tokens) const;
  /// Clears rows, e.g. when the canvas is cut or the conversation starts anew.
  void invalidate(PositionRange range);

  /// Memory of K and V; 0: this kind of cache cannot give its rows to another one.
  virtual std::int64_t bytes() const { return 0; }
  /// Copies rows that `from`, a cache of the same backend with bytes() > 0, holds to the positions from `to` on, as one
  /// forward pass would have written them.
  virtual void copy(const KvCache& from, PositionRange rows, Position to);

  /// The same for ascending positions, which stay what they are, as one pass would have written them. Only for backends
  /// with a second path.
  virtual void copy_rows(const KvCache& from, std::span<const Position> positions);

  /// Makes this cache a branch of `parent`, which has the same capacity, without rows of its own. `pending`: the rows
  /// that the coming pass, in which the branch runs too, writes to the parent. The branch sees their new K and V, and
  /// its record already says so, as if that pass had been made. The parent must stay where it is until the branch
  /// follows another cache or ends.
  void follow(const KvCache& parent, std::span<const PlanRow> pending = {});
  /// Takes over the rows that `branch` has written, as if its passes had been made on this cache. The branch follows
  /// this cache, directly or through branches that have no rows of their own. Afterwards it has none either. Rows of
  /// which K and V could not be copied are empty then.
  void adopt(KvCache& branch);
  bool can_adopt(const KvCache& branch) const;
  const KvCache* parent() const { return parent_; }
  /// The cache that stores the row: this one, or one that it is a branch of.
  const KvCache& holder(Position position) const;

 protected:
  explicit KvCache(Position capacity) : entries_(static_cast<std::size_t>(capacity)) {}
  /// Called by follow(), of which a backend may want to know more than what this class records.
  virtual void followed(const KvCache&, std::span<const PlanRow>) {}
  /// Called by the backend once per forward pass that stores these rows.
  void record(std::span<const PlanRow> rows);
  /// adopt()'s copy of K and V; false: it failed, and adopt() invalidates the rows. Only for backends that run
  /// branches.
  virtual bool take(const KvCache& branch, std::span<const PositionRange> rows);

 private:
  struct Entry {
    std::uint32_t epoch = 0;
    TokenId token = -1;
    std::uint32_t same_since = 0;
  };
  const Entry& entry(Position position) const { return entries_[static_cast<std::size_t>(position)]; }

  std::vector<Entry> entries_;
  std::uint32_t epoch_ = 0;
  const KvCache* parent_ = nullptr;
  std::vector<std::uint8_t> own_;  ///< by position: stored here; empty without a parent
};

}  // namespace dllm
