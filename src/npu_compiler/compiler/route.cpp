// Routing: scores and keys of every row, `used` rounds of V_RED_MAX_IDX, and, on the scalar unit, a list of rows for
// every expert. docs/design/npu-compiler.md, "Experts", describes the design.

#include <fmt/format.h>

#include <array>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/compiler/expert_matrices.h"
#include "npu_compiler/compiler/group_limit.h"

namespace dllm::npu {
namespace {

constexpr float kSumEps = 1e-20f;  // of op::Route

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
        slabs_(z_.slabs),
        rows_(context.value_rows(o.logits)),
        groups_(context, o, experts_, z_) {
    biased_ = o.bias != kNoId && c_.layout.find(o.bias, WeightUse::kRow) != nullptr;
  }

  Expected<void> run() {
    DLLM_CHECK_OK(plan_words());
    if (!c_.counts) load_ahead();
    DLLM_TRY(w_, c_.place_output(o_.out));
    DLLM_TRY(scores_, c_.acquire(slabs_ * z_.stride, "scores of experts"));
    DLLM_TRY(keys_, c_.acquire(slabs_ * z_.stride, "keys of experts"));
    c_.expert_words.first_row = c_.address(keys_.row);
    DLLM_TRY(scratch_, c_.acquire(groups_.scratch_rows(), "rows of intermediate results"));
    for (std::int64_t slab = 0; slab < slabs_; ++slab) {
      const std::int64_t here = experts_in(slab);
      DLLM_TRY(const Buffer limit, c_.constant_row(lanes(here, c_.infinity(), c_.lowest())));
      DLLM_TRY(const Buffer counts, c_.constant_row(lanes(here, c_.one(), 0)));
      limits_.push_back(limit), counts_.push_back(counts);
    }
    DLLM_TRY(chosen_, c_.constant_row(lanes(1, c_.minus_infinity(), c_.infinity())));
    if (biased_) {
      DLLM_TRY(bias_, c_.resident(o_.bias, WeightUse::kRow));
    }
    if (o_.expert_scale != kNoId) {
      DLLM_TRY(expert_scale_, c_.resident(o_.expert_scale, WeightUse::kRow));
    }
    if (o_.groups > 1) DLLM_CHECK_OK(groups_.place_constants());
    if (!c_.counts) emit();
    for (const Buffer& buffer : {scores_, keys_, scratch_}) c_.release(buffer);
    c_.routed = o_.out;
    return {};
  }

 private:
  /// Experts in a row of lanes; a row of the step has `slabs_` of them.
  std::int64_t experts_in(std::int64_t slab) const { return std::min(c_.vlen(), experts_ - slab * c_.vlen()); }

  void emit() {
    list_places();
    o_.score == GateScore::kSoftmax ? softmax() : sigmoid();
    if (o_.groups > 1) groups_.limit(keys_, scratch_);
    if (o_.capacity > 0) limit_blocks();
    clear_heads();
    choose();
    weigh();
  }

  static constexpr std::int64_t kInterleaved = GroupLimit::kTogether;

  /// In INT_MEM for each expert, the offset of its slab if slabs were a row apart. Experts in lanes of one row need
  /// none.
  void list_places() {
    if (slabs_ == 1) return;
    const Gp word = e_.reg(c_.expert_words.places), offset = e_.reg(0);
    for (std::int64_t slab = 0; slab < slabs_; ++slab) {
      e_.loop(experts_in(slab), [&] {
        e_.store_int(offset, word, 0);
        e_.add(word, word, 1);
      });
      e_.add(offset, offset, c_.vlen());
    }
  }

  template <class Body>
  void by_slab(InterleavedRows rows, const Body& body) {
    each_slab(e_, slabs_, z_.stride * c_.vlen(), rows, body);
  }
  /// The slab's row of a constant, of which the first slab's is there from the start.
  void of_slab(const Gp& pointer, const Buffer& row, std::int64_t slab = 0) {
    if (slabs_ > 1) e_.load(pointer, c_.address(row.row + slab));
  }

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
    const std::int64_t places = state + kExpertStateWords, end = places + (slabs_ > 1 ? experts_ : 0);
    const std::int64_t words = scratch_word(c_.machine, 0);
    if (end > words)
      return Error{ErrorCode::kUsage,
                   fmt::format("{} rows that choose {} of {} experts need {} words of INT_MEM, there are {}", rows_,
                               o_.used, experts_, end, words),
                   "npu compiler", "fewer rows per step (--batch, --rows), or --set sram.int_words=N with a larger N"};
    c_.expert_words = {static_cast<std::uint32_t>(nodes),
                       static_cast<std::uint32_t>(heads),
                       static_cast<std::uint32_t>(touched),
                       static_cast<std::uint32_t>(state),
                       slabs_ > 1 ? static_cast<std::uint32_t>(places) : 0,
                       0};
    return {};
  }

  /// s = e^(z - max) / sum over the experts; keys are the logits, which have the same order as scores, unrounded.
  void softmax() {
    const bool by_score = biased_ || o_.groups > 1;
    const Gp limit = pointer(limits_[0]), counts = pointer(counts_[0]);
    // The maximum is still needed when the sum of further slabs begins.
    const std::uint32_t sums = slabs_ > 1 ? kInterleaved : 0;
    interleave_rows(c_, rows_, kInterleaved, std::array{z_.row, scores_.row, keys_.row}, [&](InterleavedRows rows) {
      const auto each = [&](auto emit) {
        for (std::size_t g = 0; g < rows.size(); ++g)
          emit(rows[g][0], rows[g][1], rows[g][2], 1 + static_cast<std::uint32_t>(g));
      };
      by_slab(rows, [&](std::int64_t slab) {
        of_slab(limit, limits_[to_size(slab)]);
        each([&](const Gp& z, const Gp&, const Gp& t, std::uint32_t) { vv(Op::V_MIN_VV, t, z, limit); });
        if (slab == 0)
          each([&](const Gp&, const Gp&, const Gp&, std::uint32_t f) { e_.load_fp(f, c_.minus_infinity()); });
        each([&](const Gp&, const Gp&, const Gp& t, std::uint32_t f) { e_.reduce(Op::V_RED_MAX, f, t); });
      });
      by_slab(rows, [&](std::int64_t slab) {
        const bool whole = experts_in(slab) == c_.vlen();
        each([&](const Gp&, const Gp& s, const Gp& t, std::uint32_t f) { e_.vector_vf(Op::V_SUB_VF, s, t, f); });
        each([&](const Gp&, const Gp& s, const Gp&, std::uint32_t) { e_.vector_v(Op::V_EXP_V, s, s); });
        if (!whole) {
          of_slab(counts, counts_[to_size(slab)]);
          each([&](const Gp&, const Gp& s, const Gp&, std::uint32_t) { vv(Op::V_MUL_VV, s, s, counts); });
        }
        if (slab == 0) each([&](const Gp&, const Gp&, const Gp&, std::uint32_t f) { e_.load_fp(f + sums, 0); });
        each([&](const Gp&, const Gp& s, const Gp&, std::uint32_t f) { e_.reduce(Op::V_RED_SUM, f + sums, s); });
      });
      each([&](const Gp&, const Gp&, const Gp&, std::uint32_t f) { e_.scalar(Op::S_RECI_FP, f + sums, f + sums); });
      by_slab(rows, [&](std::int64_t) {
        each([&](const Gp&, const Gp& s, const Gp&, std::uint32_t f) { e_.vector_vf(Op::V_MUL_VF, s, s, f + sums); });
      });
    });
    if (by_score) keys_from_scores();
  }

  /// s = 1 / (1 + e^-z)
  void sigmoid() {
    constexpr std::uint32_t kOne = 1;
    const bool by_score = biased_ || o_.groups > 1;
    e_.load_fp(kOne, c_.one());
    {
      const Gp limit = pointer(limits_[0]);
      interleave_rows(c_, rows_, kInterleaved, std::array{z_.row, scores_.row, keys_.row}, [&](InterleavedRows rows) {
        by_slab(rows, [&](std::int64_t slab) {
          for (const auto& r : rows) e_.vector_vf(Op::V_SUB_VF, r[1], r[0], 0, 1);
          for (const auto& r : rows) e_.vector_v(Op::V_EXP_V, r[1], r[1]);
          for (const auto& r : rows) e_.vector_vf(Op::V_ADD_VF, r[1], r[1], kOne);
          for (const auto& r : rows) e_.vector_v(Op::V_RECI_V, r[1], r[1]);
          if (by_score) return;
          of_slab(limit, limits_[to_size(slab)]);
          for (const auto& r : rows) vv(Op::V_MIN_VV, r[2], r[0], limit);
        });
      });
    }
    if (by_score) keys_from_scores();
  }

  void keys_from_scores() {
    const Gp limit = pointer(limits_[0]), bias = biased_ ? pointer(bias_) : Gp();
    interleave_rows(c_, rows_, kInterleaved, std::array{scores_.row, keys_.row}, [&](InterleavedRows rows) {
      by_slab(rows, [&](std::int64_t slab) {
        of_slab(limit, limits_[to_size(slab)]);
        if (biased_) {
          of_slab(bias, bias_, slab);
          for (const auto& r : rows) vv(Op::V_ADD_VV, r[1], r[0], bias);
        }
        for (const auto& r : rows) vv(Op::V_MIN_VV, r[1], biased_ ? r[1] : r[0], limit);
      });
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
      const Gp best = pointer(scratch_), mask = pointer(scratch_, 1), counts = pointer(counts_[0]);
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
    if (slabs_ > 1) return choose_by_slab();
    constexpr std::int64_t kRoundRows = 4;  // at a time, while V_RED_MAX_IDX computes
    const Gp chosen = pointer(chosen_), node = e_.reg(c_.expert_words.nodes), t = e_.reg(), out = pointer(scratch_);
    interleave_rows(c_, rows_, kRoundRows, std::array{keys_.row}, [&](InterleavedRows rows) {
      std::vector<Gp> lanes;
      for (std::size_t g = 0; g < rows.size(); ++g) lanes.push_back(e_.reg(0));
      for (std::int32_t j = 0; j < o_.used; ++j) {
        for (std::size_t g = 0; g < rows.size(); ++g)
          e_.load_fp(1 + static_cast<std::uint32_t>(g), c_.minus_infinity());
        for (std::size_t g = 0; g < rows.size(); ++g) {
          note_choice(g, j == 0);
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
  void note_choice(std::size_t row, bool first) {
    c_.choices.push_back({e_.position(), static_cast<std::uint32_t>(row), first, static_cast<std::uint32_t>(o_.used),
                          static_cast<std::uint32_t>(experts_), static_cast<std::uint32_t>((slabs_ - 1) * c_.vlen())});
  }

  /// The same with two rows at a time; the chosen key is in one of the row's slabs.
  void choose_by_slab() {
    const Gp chosen = pointer(chosen_), node = e_.reg(c_.expert_words.nodes), t = e_.reg(), out = pointer(scratch_),
             stride = e_.reg(static_cast<std::uint32_t>(z_.stride)), first = e_.reg();
    interleave_rows(c_, rows_, kInterleaved, std::array{keys_.row}, [&](InterleavedRows rows) {
      std::vector<Gp> lanes;
      for (std::size_t g = 0; g < rows.size(); ++g) lanes.push_back(e_.reg(0));
      for (std::int32_t j = 0; j < o_.used; ++j) {
        for (std::size_t g = 0; g < rows.size(); ++g)
          e_.load_fp(1 + static_cast<std::uint32_t>(g), c_.minus_infinity());
        by_slab(rows, [&](std::int64_t slab) {
          e_.load(first, static_cast<std::uint32_t>(slab * c_.vlen()));
          for (std::size_t g = 0; g < rows.size(); ++g) {
            if (slab + 1 == slabs_) note_choice(g, j == 0);
            e_.max_index(lanes[g], rows[g][0], first, 1 + static_cast<std::uint32_t>(g));
          }
        });
        for (std::size_t g = 0; g < rows.size(); ++g) {
          e_.load_int(t, lanes[g], c_.expert_words.places);
          e_.multiply(t, t, stride);
          e_.add(t, t, rows[g][0]);
          e_.shift(out, chosen, lanes[g], 1);
          vv(Op::V_MIN_VV, t, t, out);
          enlist(lanes[g], rows[g][0], node, t, static_cast<std::uint32_t>(g) * to_word(o_.used) + to_word(j));
        }
      }
      e_.add(node, node, 2 * static_cast<std::int64_t>(rows.size()) * o_.used);
    });
  }

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
    const bool by_expert = o_.expert_scale != kNoId;
    const Gp of_expert = by_expert ? pointer(expert_scale_) : Gp();
    interleave_rows(c_, rows_, kInterleaved, std::array{w_.row, scores_.row, keys_.row}, [&](InterleavedRows rows) {
      // minus the key, minus the largest number: infinity where chosen, elsewhere at most 0
      by_slab(rows, [&](std::int64_t slab) {
        for (const auto& r : rows) e_.vector_vf(Op::V_SUB_VF, r[0], r[2], 0, 1);
        for (const auto& r : rows) e_.vector_vf(Op::V_SUB_VF, r[0], r[0], kEnd);
        for (const auto& r : rows) vv(Op::V_MIN_VV, r[0], r[0], r[1]);
        for (const auto& r : rows) e_.vector_vf(Op::V_MAX_VF, r[0], r[0], 0);
        if (!o_.normalize) return;
        for (std::uint32_t f = 1; f <= rows.size() && slab == 0; ++f) e_.load_fp(f, 0);
        for (std::uint32_t f = 1; f <= rows.size(); ++f) e_.reduce(Op::V_RED_SUM, f, rows[f - 1][0]);
      });
      if (o_.normalize) {
        for (std::uint32_t f = 1; f <= rows.size(); ++f) e_.scalar(Op::S_ADD_FP, f, f, kSumEpsWord);
        for (std::uint32_t f = 1; f <= rows.size(); ++f) e_.scalar(Op::S_RECI_FP, f, f);
        if (scaled)
          for (std::uint32_t f = 1; f <= rows.size(); ++f) e_.scalar(Op::S_MUL_FP, f, f, kScale);
      }
      by_slab(rows, [&](std::int64_t slab) {
        for (std::uint32_t f = 1; f <= rows.size() && (o_.normalize || scaled); ++f)
          e_.vector_vf(Op::V_MUL_VF, rows[f - 1][0], rows[f - 1][0], o_.normalize ? f : kScale);
        if (!by_expert) return;
        of_slab(of_expert, expert_scale_, slab);
        for (const auto& r : rows) vv(Op::V_MUL_VV, r[0], r[0], of_expert);
      });
    });
  }

  StepContext& c_;
  Emitter& e_;
  const op::Route& o_;
  ValuePlace z_, w_;
  std::int64_t experts_, slabs_, rows_;
  bool biased_ = false;
  std::vector<Buffer> limits_, counts_;  ///< by slab
  Buffer scores_, keys_, scratch_, chosen_, bias_, expert_scale_;
  GroupLimit groups_;
};

}  // namespace

Expected<void> lower(StepContext& c, const op::Route& o) { return Router(c, o).run(); }

}  // namespace dllm::npu
