#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "npu_compiler/compiler/context.h"

// The group limit of a router: experts of groups that a row does not use keep no key that could be chosen.

namespace dllm::npu {

using InterleavedRows = std::span<const std::vector<Gp>>;

/// body(slab) for every slab, while the pointers of all rows move along by `stride` elements, and back at the end.
template <class Body>
void each_slab(Emitter& e, std::int64_t slabs, std::int64_t stride, InterleavedRows rows, const Body& body) {
  for (std::int64_t slab = 0; slab < slabs; ++slab) {
    body(slab);
    if (slabs == 1) return;
    const std::int64_t next = slab + 1 < slabs ? stride : (1 - slabs) * stride;
    for (const std::vector<Gp>& row : rows)
      for (const Gp& pointer : row) e.add(pointer, pointer, next);
  }
}

class GroupLimit {
 public:
  static constexpr std::int64_t kTogether = 2;  ///< rows at a time

  /// `logits`: of `experts` experts; scores and keys are placed alike.
  GroupLimit(StepContext& context, const op::Route& o, std::int64_t experts, const ValuePlace& logits);

  /// Rows of intermediate results, also of other steps of routing.
  std::int64_t scratch_rows() const { return kTogether * row_scratch(); }
  /// Errors: no room.
  Expected<void> place_constants();
  /// Sets keys of groups that are not among the `groups_used` with the largest sums of their two best to the lowest.
  /// Every lane learns the two best of its section by joining disjoint windows of 1, 2, 4, ... lanes.
  void limit(const Buffer& keys, const Buffer& scratch);

 private:
  /// Rows of intermediate results of one row.
  struct Row {
    Gp first, second, a, b;
  };
  /// The two best by slab, and two more.
  std::int64_t row_scratch() const { return 2 * slabs_ + 2; }
  Row row(const Buffer& scratch, std::int64_t index) const;
  void limit_by_slab(const Buffer& keys, const Buffer& scratch);
  void best_lane(const Gp& lane, const Gp& row);
  template <class Each>
  void best_two(const Each& each);
  template <class Each>
  void keep_groups(const Each& each);
  Gp pointer(const Buffer& buffer, std::int64_t at = 0) const { return e_.reg(c_.address(buffer.row + at)); }
  void vv(Op op, const Gp& rd, const Gp& a, const Gp& b) { e_.vector_vv(op, rd, a, b); }
  Expected<Buffer> lanes(Bf16 value, Bf16 others);

  StepContext& c_;
  Emitter& e_;
  const op::Route& o_;
  std::int64_t size_, slabs_, stride_, rows_;
  Buffer others_, own_, none_;
};

}  // namespace dllm::npu
