// Routing: scores and keys of every row, `used` rounds of V_RED_MAX_IDX, and, on the scalar unit, a list of rows for
// every expert. docs/design/npu-compiler.md, "Experts", describes the design.

#include <fmt/format.h>

#include <array>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/compiler/expert_matrices.h"

namespace dllm::npu {
namespace {

constexpr float kSumEps = 1e-20f;  // of op::Route

using InterleavedRows = std::span<const std::vector<Gp>>;

/// Lanes without an expert, and experts that a row may not choose, have the lowest finite key; chosen ones get
/// -infinity, so the two remain distinct.
class Router {
 public:
  Router(StepContext& context, const op::Route& o)
      : c_(context),
        e_(context.e),
        o_(o),
        z_(context.place(o.logits)),
        experts_(context.map(o.logits).width),
        rows_(context.value_rows(o.logits)) {
    biased_ = o.bias != kNoId && c_.layout.find(o.bias, WeightUse::kRow) != nullptr;
  }

  Expected<void> run() {
    DLLM_CHECK_OK(plan_words());
    load_ahead();
    DLLM_TRY(w_, c_.place_output(o_.out));
    DLLM_TRY(scores_, c_.acquire(z_.stride, "scores of experts"));
    DLLM_TRY(keys_, c_.acquire(z_.stride, "keys of experts"));
    c_.expert_words.first_row = c_.address(keys_.row);
    DLLM_TRY(scratch_, c_.acquire(kScratch, "rows of intermediate results"));
    DLLM_TRY(limit_, c_.constant_row(lanes(experts_, c_.infinity(), c_.lowest())));
    DLLM_TRY(counts_, c_.constant_row(lanes(experts_, c_.one(), 0)));
    DLLM_TRY(chosen_, c_.constant_row(lanes(1, c_.minus_infinity(), c_.infinity())));
    if (biased_) {
      DLLM_TRY(bias_, c_.resident(o_.bias, WeightUse::kRow));
    }
    o_.score == GateScore::kSoftmax ? softmax() : sigmoid();
    if (o_.groups > 1) DLLM_CHECK_OK(limit_groups());
    if (o_.capacity > 0) limit_blocks();
    clear_heads();
    choose();
    weigh();
    for (const Buffer& buffer : {scores_, keys_, scratch_}) c_.release(buffer);
    c_.routed = o_.out;
    return {};
  }

 private:
  static constexpr std::int64_t kScratch = 8;      // rows
  static constexpr std::int64_t kInterleaved = 2;  // rows at a time

  /// Memory would be idle while rows choose.
  void load_ahead() {
    for (const dllm::Op& any : c_.graph.ops) {
      const auto* experts = std::get_if<op::Experts>(&any);
      if (experts == nullptr || experts->route != o_.out) continue;
      ExpertMatrices matrices(c_, *experts);
      for (std::int64_t i = 0; i < matrices.ahead(); ++i)
        for (const auto matrix : {ExpertMatrices::kGate, ExpertMatrices::kUp, ExpertMatrices::kDown})
          matrices.fetch(matrix, i, i);
    }
  }

  std::vector<Bf16> lanes(std::int64_t count, Bf16 value, Bf16 others) const {
    std::vector<Bf16> row(to_size(c_.vlen()), others);
    std::fill_n(row.begin(), count, value);
    return row;
  }
  Gp pointer(const Buffer& buffer, std::int64_t row = 0) const { return e_.reg(c_.address(buffer.row + row)); }
  void vv(Op op, const Gp& rd, const Gp& a, const Gp& b) { e_.vector_vv(op, rd, a, b); }

  /// Lists of a step follow its tokens (and the results of a reduced head).
  Expected<void> plan_words() {
    const std::int64_t head = head_words(c_.options, c_.spec.scored());
    const std::int64_t nodes = kTokenWords + c_.token_words() + head;
    const std::int64_t heads = nodes + 2 * rows_ * o_.used, touched = heads + experts_,
                       state = touched + experts_ + std::max<std::int64_t>(1, c_.layout.mram.expert_slots);
    const std::int64_t words = scratch_word(c_.machine, 0);
    if (state + kExpertStateWords > words)
      return Error{ErrorCode::kUsage,
                   fmt::format("{} rows that choose {} of {} experts need {} words of INT_MEM, there are {}", rows_,
                               o_.used, experts_, state + kExpertStateWords, words),
                   "npu compiler", "fewer rows per step (--batch, --rows), or --set sram.int_words=N with a larger N"};
    c_.expert_words = {static_cast<std::uint32_t>(nodes), static_cast<std::uint32_t>(heads),
                       static_cast<std::uint32_t>(touched), static_cast<std::uint32_t>(state), 0};
    return {};
  }

  /// s = e^(z - max) / sum over the experts; keys are the logits, which have the same order as scores, unrounded.
  void softmax() {
    const bool whole = experts_ == c_.vlen(), by_score = biased_ || o_.groups > 1;
    const Gp limit = pointer(limit_), counts = pointer(counts_);
    interleave_rows(c_, rows_, kInterleaved, std::array{z_.row, scores_.row, keys_.row}, [&](InterleavedRows rows) {
      const auto each = [&](auto emit) {
        for (std::size_t g = 0; g < rows.size(); ++g)
          emit(rows[g][0], rows[g][1], rows[g][2], 1 + static_cast<std::uint32_t>(g));
      };
      each([&](const Gp& z, const Gp&, const Gp& t, std::uint32_t) { vv(Op::V_MIN_VV, t, z, limit); });
      each([&](const Gp&, const Gp&, const Gp&, std::uint32_t f) { e_.load_fp(f, c_.minus_infinity()); });
      each([&](const Gp&, const Gp&, const Gp& t, std::uint32_t f) { e_.reduce(Op::V_RED_MAX, f, t); });
      each([&](const Gp&, const Gp& s, const Gp& t, std::uint32_t f) { e_.vector_vf(Op::V_SUB_VF, s, t, f); });
      each([&](const Gp&, const Gp& s, const Gp&, std::uint32_t) { e_.vector_v(Op::V_EXP_V, s, s); });
      if (!whole) each([&](const Gp&, const Gp& s, const Gp&, std::uint32_t) { vv(Op::V_MUL_VV, s, s, counts); });
      each([&](const Gp&, const Gp&, const Gp&, std::uint32_t f) { e_.load_fp(f, 0); });
      each([&](const Gp&, const Gp& s, const Gp&, std::uint32_t f) { e_.reduce(Op::V_RED_SUM, f, s); });
      each([&](const Gp&, const Gp&, const Gp&, std::uint32_t f) { e_.scalar(Op::S_RECI_FP, f, f); });
      each([&](const Gp&, const Gp& s, const Gp&, std::uint32_t f) { e_.vector_vf(Op::V_MUL_VF, s, s, f); });
    });
    if (by_score) keys_from_scores();
  }

  /// s = 1 / (1 + e^-z)
  void sigmoid() {
    constexpr std::uint32_t kOne = 1;
    const bool by_score = biased_ || o_.groups > 1;
    e_.load_fp(kOne, c_.one());
    {
      const Gp limit = pointer(limit_);
      interleave_rows(c_, rows_, kInterleaved, std::array{z_.row, scores_.row, keys_.row}, [&](InterleavedRows rows) {
        for (const auto& r : rows) e_.vector_vf(Op::V_SUB_VF, r[1], r[0], 0, 1);
        for (const auto& r : rows) e_.vector_v(Op::V_EXP_V, r[1], r[1]);
        for (const auto& r : rows) e_.vector_vf(Op::V_ADD_VF, r[1], r[1], kOne);
        for (const auto& r : rows) e_.vector_v(Op::V_RECI_V, r[1], r[1]);
        if (by_score) return;
        for (const auto& r : rows) vv(Op::V_MIN_VV, r[2], r[0], limit);
      });
    }
    if (by_score) keys_from_scores();
  }

  void keys_from_scores() {
    const Gp limit = pointer(limit_), bias = biased_ ? pointer(bias_) : Gp();
    interleave_rows(c_, rows_, kInterleaved, std::array{scores_.row, keys_.row}, [&](InterleavedRows rows) {
      if (biased_)
        for (const auto& r : rows) vv(Op::V_ADD_VV, r[1], r[0], bias);
      for (const auto& r : rows) vv(Op::V_MIN_VV, r[1], biased_ ? r[1] : r[0], limit);
    });
  }

  /// Sets keys of groups that are not among the `groups_used` with the largest sums of their two best to the lowest.
  /// Every lane learns the two best of its section by joining disjoint windows of 1, 2, 4, ... lanes.
  Expected<void> limit_groups() {
    const std::int64_t size = experts_ / o_.groups;
    DLLM_TRY(const Buffer out, c_.constant_row(lanes(size, c_.minus_infinity(), c_.infinity())));
    DLLM_TRY(const Buffer in, c_.constant_row(lanes(size, c_.infinity(), c_.lowest())));
    e_.set_csr(Csr::kSegmentLength, static_cast<std::uint32_t>(size));
    struct Row {
      Gp first, second, a, b;  // rows of intermediate results
    };
    interleave_rows(c_, rows_, kInterleaved, std::array{keys_.row}, [&](InterleavedRows rows) {
      std::vector<Row> at;
      for (std::size_t g = 0; g < rows.size(); ++g) {
        const auto row = static_cast<std::int64_t>(4 * g);
        at.push_back({pointer(scratch_, row), pointer(scratch_, row + 1), pointer(scratch_, row + 2),
                      pointer(scratch_, row + 3)});
      }
      const auto each = [&](auto emit) {
        for (std::size_t g = 0; g < at.size(); ++g) emit(at[g], rows[g][0]);
      };
      best_two(size, each);
      if (size > 1) each([&](const Row& r, const Gp&) { vv(Op::V_ADD_VV, r.first, r.first, r.second); });
      keep_groups(pointer(out), pointer(in), each);
      each([&](const Row& r, const Gp& t) { vv(Op::V_MIN_VV, t, t, r.second); });
    });
    return {};
  }

  /// first, second <- the two best of the section; `first` only, for sections of one lane.
  template <class Each>
  void best_two(std::int64_t size, const Each& each) {
    const Gp distance = e_.reg();
    if (size == 1) return each([&](const auto& r, const Gp& t) { e_.shift(r.first, t, Gp(), 1); });
    for (std::int64_t step = 1; step < size; step *= 2) {
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
  void keep_groups(const Gp& out, const Gp& in, const Each& each) {
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

  /// Sets keys of experts that are not among the `capacity` best of a block's maxima to the lowest.
  void limit_blocks() {
    constexpr std::uint32_t kOne = 1, kLarge = 2;
    for (std::size_t begin = 0; begin < c_.rows.size();) {
      const StepRow& first = c_.rows[begin];
      std::size_t end = begin + 1;
      while (end < c_.rows.size() && c_.rows[end].sequence == first.sequence &&
             c_.rows[end].position / o_.block == first.position / o_.block)
        ++end;
      const Gp best = pointer(scratch_), mask = pointer(scratch_, 1), counts = pointer(counts_);
      Gp t = pointer(keys_, static_cast<std::int64_t>(begin));
      e_.shift(best, t, Gp(), 1);
      const auto rows = static_cast<std::int64_t>(end - begin);
      e_.loop(rows - 1, [&] {
        e_.add(t, t, c_.vlen());
        vv(Op::V_MAX_VV, best, best, t);
      });
      {
        const Gp capacity = e_.reg(static_cast<std::uint32_t>(o_.capacity)),
                 count = e_.reg(static_cast<std::uint32_t>(experts_));
        Instruction top;
        top.op = Op::V_TOPK_MASK;
        top.set(Field::kRd, mask.index());
        top.set(Field::kRs1, best.index());
        top.set(Field::kRs2, counts.index());
        top.set(Field::kRs3, capacity.index());
        top.set(Field::kFunct, count.index());
        e_.raw(top);
      }
      // 0 where allowed, else a number so large that the key is lost in it
      e_.load_fp(kOne, c_.one());
      e_.load_fp(kLarge, c_.largest());
      e_.vector_vf(Op::V_SUB_VF, mask, mask, kOne);
      e_.vector_vf(Op::V_MUL_VF, mask, mask, kLarge);
      e_.load(t, c_.address(keys_.row + static_cast<std::int64_t>(begin)));
      e_.load_fp(kOne, c_.lowest());
      e_.loop(rows, [&] {
        vv(Op::V_ADD_VV, t, t, mask);
        e_.vector_vf(Op::V_MAX_VF, t, t, kOne);  // -infinity is reserved for chosen ones
        e_.add(t, t, c_.vlen());
      });
      begin = end;
    }
  }

  void clear_heads() {
    const Gp word = e_.reg(c_.expert_words.heads);
    e_.loop(experts_, [&] {
      e_.store_int(Gp(), word, 0);
      e_.add(word, word, 1);
    });
  }

  /// `used` rounds. In the end a key is -infinity where chosen. A round's rows share the row with the chosen lane: it
  /// goes straight from one pipe to the next.
  void choose() {
    constexpr std::int64_t kRoundRows = 4;  // at a time, while V_RED_MAX_IDX computes
    const Gp chosen = pointer(chosen_), node = e_.reg(c_.expert_words.nodes), t = e_.reg(), out = pointer(scratch_);
    interleave_rows(c_, rows_, kRoundRows, std::array{keys_.row}, [&](InterleavedRows rows) {
      std::vector<Gp> lanes;
      for (std::size_t g = 0; g < rows.size(); ++g) lanes.push_back(e_.reg(0));
      for (std::int32_t j = 0; j < o_.used; ++j) {
        for (std::size_t g = 0; g < rows.size(); ++g)
          e_.load_fp(1 + static_cast<std::uint32_t>(g), c_.minus_infinity());
        for (std::size_t g = 0; g < rows.size(); ++g) {
          c_.choices.push_back({e_.position(), static_cast<std::uint32_t>(g), j == 0,
                                static_cast<std::uint32_t>(o_.used), static_cast<std::uint32_t>(experts_)});
          e_.max_index(lanes[g], rows[g][0], Gp(), 1 + static_cast<std::uint32_t>(g));
        }
        for (std::size_t g = 0; g < rows.size(); ++g) {
          e_.shift(out, chosen, lanes[g], 1);
          vv(Op::V_MIN_VV, rows[g][0], rows[g][0], out);
          enlist(lanes[g], rows[g][0], node, t, static_cast<std::uint32_t>(g) * to_word(o_.used) + to_word(j));
        }
      }
      e_.add(node, node, 2 * static_cast<std::int64_t>(rows.size()) * o_.used);
    });
  }
  static std::uint32_t to_word(std::int32_t count) { return static_cast<std::uint32_t>(count); }

  /// Adds the node at `index` from `node` on at the front of the list of the expert in `lane`.
  void enlist(const Gp& lane, const Gp& row, const Gp& node, const Gp& t, std::uint32_t index) {
    e_.load_int(t, lane, c_.expert_words.heads);
    e_.store_int(t, node, 2 * index);
    e_.store_int(row, node, 2 * index + 1);
    e_.add(t, node, 2 * std::int64_t{index});
    e_.store_int(t, lane, c_.expert_words.heads);
  }

  /// w <- the chosen scores, normalized and scaled; 0 elsewhere.
  void weigh() {
    constexpr std::uint32_t kSumEpsWord = 5, kScale = 6, kEnd = 7;
    const bool scaled = o_.scale != 1.0f;
    if (o_.normalize) e_.load_fp(kSumEpsWord, c_.number(kSumEps));
    if (scaled) e_.load_fp(kScale, c_.number(o_.scale));
    e_.load_fp(kEnd, c_.largest());
    interleave_rows(c_, rows_, kInterleaved, std::array{w_.row, scores_.row, keys_.row}, [&](InterleavedRows rows) {
      // minus the key, minus the largest number: infinity where chosen, elsewhere at most 0
      for (const auto& r : rows) e_.vector_vf(Op::V_SUB_VF, r[0], r[2], 0, 1);
      for (const auto& r : rows) e_.vector_vf(Op::V_SUB_VF, r[0], r[0], kEnd);
      for (const auto& r : rows) vv(Op::V_MIN_VV, r[0], r[0], r[1]);
      for (const auto& r : rows) e_.vector_vf(Op::V_MAX_VF, r[0], r[0], 0);
      if (o_.normalize) {
        for (std::uint32_t f = 1; f <= rows.size(); ++f) e_.load_fp(f, 0);
        for (std::uint32_t f = 1; f <= rows.size(); ++f) e_.reduce(Op::V_RED_SUM, f, rows[f - 1][0]);
        for (std::uint32_t f = 1; f <= rows.size(); ++f) e_.scalar(Op::S_ADD_FP, f, f, kSumEpsWord);
        for (std::uint32_t f = 1; f <= rows.size(); ++f) e_.scalar(Op::S_RECI_FP, f, f);
        if (scaled)
          for (std::uint32_t f = 1; f <= rows.size(); ++f) e_.scalar(Op::S_MUL_FP, f, f, kScale);
        for (std::uint32_t f = 1; f <= rows.size(); ++f) e_.vector_vf(Op::V_MUL_VF, rows[f - 1][0], rows[f - 1][0], f);
      } else if (scaled) {
        for (const auto& r : rows) e_.vector_vf(Op::V_MUL_VF, r[0], r[0], kScale);
      }
    });
  }

  StepContext& c_;
  Emitter& e_;
  const op::Route& o_;
  ValuePlace z_, w_;
  std::int64_t experts_, rows_;
  bool biased_ = false;
  Buffer scores_, keys_, scratch_, limit_, counts_, chosen_, bias_;
};

}  // namespace

Expected<void> lower(StepContext& c, const op::Route& o) { return Router(c, o).run(); }

}  // namespace dllm::npu
