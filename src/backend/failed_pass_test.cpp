// What caches hold after a pass that failed, after a copy that failed, and what branches need for a pass.
#include "backend/failed_pass.h"

#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <vector>

#include "backend/branch_rows.h"

namespace dllm {
namespace {

class PlainCache final : public KvCache {
 public:
  explicit PlainCache(Position capacity = 16) : KvCache(capacity) {}
  using KvCache::record;
  bool fails = false;

 protected:
  bool take(const KvCache&, std::span<const PositionRange>) override { return !fails; }
};

SequenceStep step_of(KvCache& cache, PositionRange rows, PositionRange visible) {
  SequenceStep step{&cache, {}, {}, std::nullopt};
  for (Position p = rows.begin; p < rows.end; ++p) step.plan.rows.push_back({p, 7});
  step.plan.visible = {visible};
  return step;
}

TEST(FailedPass, NoCacheBelievesItsRows) {
  PlainCache parent, branch, other;
  for (PlainCache* const cache : {&parent, &other}) cache->record(step_of(parent, {0, 8}, {0, 8}).plan.rows);
  const SequenceStep writes = step_of(parent, {4, 8}, {0, 8});
  branch.follow(parent, writes.plan.rows);
  const SequenceStep reads = step_of(branch, {6, 9}, {0, 9});
  branch.record(reads.plan.rows);
  const std::vector<SequenceStep> batch = {writes, reads};
  invalidate_rows(batch);
  for (Position p = 0; p < 10; ++p) {
    EXPECT_EQ(parent.holds(p), p < 4) << p;
    EXPECT_EQ(branch.holds(p), p < 4) << p << ": rows that the parent should have written, and its own";
    EXPECT_EQ(other.holds(p), p < 8) << p << ": another sequence";
  }
}

TEST(FailedPass, ABranchKeepsRowsOfItsOwn) {
  PlainCache parent, branch;
  parent.record(step_of(parent, {0, 8}, {0, 8}).plan.rows);
  branch.follow(parent);
  branch.record(step_of(branch, {2, 4}, {0, 8}).plan.rows);
  const std::vector<SequenceStep> batch = {step_of(parent, {2, 6}, {0, 8}), step_of(branch, {7, 8}, {0, 8})};
  invalidate_rows(batch);
  for (Position p = 0; p < 8; ++p) EXPECT_EQ(branch.holds(p), p < 4 || p == 6) << p;
}

TEST(FailedPass, AShortCacheBesideALongOne) {
  PlainCache writer, parent(4), branch(4);
  parent.record(step_of(parent, {0, 4}, {0, 4}).plan.rows);
  branch.follow(parent);
  const std::vector<SequenceStep> batch = {step_of(writer, {0, 16}, {0, 16}), step_of(branch, {2, 3}, {0, 4})};
  invalidate_rows(batch);
  for (Position p = 0; p < 4; ++p) EXPECT_EQ(branch.holds(p), p != 2) << p;
}

TEST(FailedPass, RowsThatCouldNotBeTakenAreEmpty) {
  for (const bool fails : {false, true}) {
    PlainCache parent, branch;
    parent.record(step_of(parent, {0, 8}, {0, 8}).plan.rows);
    branch.follow(parent);
    branch.record(step_of(branch, {2, 4}, {0, 8}).plan.rows);
    parent.fails = fails;
    parent.adopt(branch);
    for (Position p = 0; p < 8; ++p) {
      EXPECT_EQ(parent.holds(p), !fails || p < 2 || p >= 4) << p;
      EXPECT_EQ(branch.holds(p), parent.holds(p)) << p;
    }
  }
}

TEST(BranchRowsTest, OnlyWhatAPassSeesIsCopied) {
  PlainCache parent, branch;
  parent.record(step_of(parent, {0, 12}, {0, 12}).plan.rows);
  branch.follow(parent);
  SequenceStep step = step_of(branch, {4, 6}, {2, 8});
  branch.record(step.plan.rows);
  step.plan.shadows = {{{5, 1}, {{9, 10}}}};
  const BranchRows needed = branch_rows(std::vector{step});
  std::vector<bool> copied(16);
  for (const BranchRows::Copy& copy : needed.copies)
    for (Position p = copy.rows.begin; p < copy.rows.end; ++p) copied[static_cast<std::size_t>(p)] = true;
  for (Position p = 0; p < 16; ++p)
    EXPECT_EQ(copied[static_cast<std::size_t>(p)], (p >= 2 && p < 4) || (p >= 6 && p < 8) || p == 9) << p;
}

}  // namespace
}  // namespace dllm
