#include "npu_compiler/compiler/group_limit.h"

#include <algorithm>
#include <array>

#include "base/to_size.h"
#include "base/try.h"

namespace dllm::npu {

GroupLimit::GroupLimit(StepContext& context, const op::Route& o, std::int64_t experts, const ValuePlace& logits)
    : c_(context),
      e_(context.e),
      o_(o),
      size_(o.groups > 1 ? experts / o.groups : experts),
      slabs_(logits.slabs),
      stride_(logits.stride * context.vlen()),
      rows_(context.value_rows(o.logits)) {}

Expected<Buffer> GroupLimit::lanes(Bf16 value, Bf16 others) {
  std::vector<Bf16> row(to_size(c_.vlen()), others);
  std::fill_n(row.begin(), size_, value);
  return c_.constant_row(row);
}

Expected<void> GroupLimit::place_constants() {
  DLLM_TRY(others_, lanes(c_.minus_infinity(), c_.infinity()));
  DLLM_TRY(own_, lanes(c_.infinity(), c_.lowest()));
  if (slabs_ > 1) {
    DLLM_TRY(none_, c_.constant_row(std::vector<Bf16>(to_size(c_.vlen()), c_.lowest())));
  }
  return {};
}

GroupLimit::Row GroupLimit::row(const Buffer& scratch, std::int64_t index) const {
  const std::int64_t at = index * row_scratch();
  return {pointer(scratch, at), pointer(scratch, at + slabs_), pointer(scratch, at + 2 * slabs_),
          pointer(scratch, at + 2 * slabs_ + 1)};
}

/// first, second <- the two best of the section; `first` only, for sections of one lane.
template <class Each>
void GroupLimit::best_two(const Each& each) {
  const Gp distance = e_.reg();
  if (size_ == 1) return each([&](const auto& r, const Gp& t) { e_.shift(r.first, t, Gp(), 1); });
  for (std::int64_t step = 1; step < size_; step *= 2) {
    e_.load(distance, static_cast<std::uint32_t>(step));
    // in the first step `first` is the keys themselves, and one lane has no second
    each([&](const auto& r, const Gp& t) { e_.shift(r.a, step == 1 ? t : r.first, distance, 2); });
    if (step > 1) each([&](const auto& r, const Gp&) { e_.shift(r.b, r.second, distance, 2); });
    if (step > 1) each([&](const auto& r, const Gp&) { vv(Op::V_MAX_VV, r.b, r.b, r.second); });
    each([&](const auto& r, const Gp& t) { vv(Op::V_MIN_VV, r.second, step == 1 ? t : r.first, r.a); });
    if (step > 1) each([&](const auto& r, const Gp&) { vv(Op::V_MAX_VV, r.second, r.second, r.b); });
    each([&](const auto& r, const Gp& t) { vv(Op::V_MAX_VV, r.first, step == 1 ? t : r.first, r.a); });
  }
}

/// second <- +infinity in the lanes of the best groups, the lowest elsewhere.
template <class Each>
void GroupLimit::keep_groups(const Each& each) {
  const Gp out = pointer(others_), in = pointer(own_);
  const Gp lane = e_.reg(0);
  for (std::int32_t i = 0; i < o_.groups_used; ++i)
    each([&](const auto& r, const Gp&) {
      e_.load_fp(1, c_.minus_infinity());
      e_.max_index(lane, r.first, Gp(), 1);  // its group's first lane
      e_.shift(r.a, out, lane, 1);
      e_.shift(i == 0 ? r.second : r.b, in, lane, 1);
      vv(Op::V_MIN_VV, r.first, r.first, r.a);
      if (i > 0) vv(Op::V_MAX_VV, r.second, r.second, r.b);
    });
}

void GroupLimit::limit(const Buffer& keys, const Buffer& scratch) {
  e_.set_csr(Csr::kSegmentLength, static_cast<std::uint32_t>(size_));
  if (slabs_ > 1) return limit_by_slab(keys, scratch);
  interleave_rows(c_, rows_, kTogether, std::array{keys.row}, [&](InterleavedRows rows) {
    std::vector<Row> at;
    for (std::size_t g = 0; g < rows.size(); ++g) at.push_back(row(scratch, static_cast<std::int64_t>(g)));
    const auto each = [&](auto emit) {
      for (std::size_t g = 0; g < at.size(); ++g) emit(at[g], rows[g][0]);
    };
    best_two(each);
    if (size_ > 1) each([&](const Row& r, const Gp&) { vv(Op::V_ADD_VV, r.first, r.first, r.second); });
    keep_groups(each);
    each([&](const Row& r, const Gp& t) { vv(Op::V_MIN_VV, t, t, r.second); });
  });
}

/// The same one row at a time: the groups of all slabs compete, and no group is in two.
void GroupLimit::limit_by_slab(const Buffer& keys, const Buffer& scratch) {
  interleave_rows(c_, rows_, 1, std::array{keys.row}, [&](InterleavedRows rows) {
    const Row r = row(scratch, 0);
    const auto next = [&](std::int64_t slab) { return (slab + 1 < slabs_ ? 1 : 1 - slabs_) * c_.vlen(); };
    const auto each = [&](auto emit) { emit(r, rows[0][0]); };
    each_slab(e_, slabs_, stride_, rows, [&](std::int64_t slab) {
      best_two(each);
      if (size_ > 1) vv(Op::V_ADD_VV, r.first, r.first, r.second);
      e_.shift(r.second, pointer(none_), Gp(), 1);
      for (const Gp* p : {&r.first, &r.second}) e_.add(*p, *p, next(slab));
    });
    const Gp out = pointer(others_), in = pointer(own_), lane = e_.reg(0), at = e_.reg();
    for (std::int32_t i = 0; i < o_.groups_used; ++i) {
      best_lane(lane, r.first);
      e_.load_int(at, lane, c_.expert_words.places);
      e_.add(at, at, r.first);
      e_.shift(r.a, out, lane, 1);
      vv(Op::V_MIN_VV, at, at, r.a);
      e_.add(at, at, slabs_ * c_.vlen());
      e_.shift(r.b, in, lane, 1);
      vv(Op::V_MAX_VV, at, at, r.b);
    }
    each_slab(e_, slabs_, stride_, rows, [&](std::int64_t slab) {
      vv(Op::V_MIN_VV, rows[0][0], rows[0][0], r.second);
      e_.add(r.second, r.second, next(slab));
    });
  });
}

/// lane <- that of the largest of a row's slabs; `row` ends where it was.
void GroupLimit::best_lane(const Gp& lane, const Gp& row) {
  e_.load_fp(1, c_.minus_infinity());
  const Gp first = e_.reg();
  for (std::int64_t slab = 0; slab < slabs_; ++slab) {
    e_.load(first, static_cast<std::uint32_t>(slab * c_.vlen()));
    e_.max_index(lane, row, first, 1);
    e_.add(row, row, (slab + 1 < slabs_ ? 1 : 1 - slabs_) * c_.vlen());
  }
}

}  // namespace dllm::npu
