#include "npu_compiler/compiler/channel_statistics.h"

#include "base/to_size.h"
#include "base/try.h"

namespace dllm::npu {
namespace {

constexpr std::uint32_t kStatistic = 1, kStatisticScale = 2, kStatisticOne = 3;  // FP registers

/// Of one slab.
class SlabStatistics {
 public:
  SlabStatistics(StepContext& c, std::int64_t first, std::int64_t count, const Buffer& scratch, const Buffer& zero,
                 const Buffer& one)
      : c_(c), e_(c.e), first_(first), count_(count), zero_row_(zero.row), one_row_(one.row) {
    most_ = e_.reg(c.address(scratch.row));
    least_ = e_.reg(c.address(scratch.row + 1));
    t_ = e_.reg(c.address(scratch.row + 2));
    sums_ = scratch.row + 3;
  }
  static constexpr std::int64_t kRows = 3 + kMeanLevels;

  void run(SmoothingCentre kind, double alpha, std::int64_t centre, std::int64_t factor, std::int64_t inverse) {
    extremes();
    const Gp c = e_.reg(c_.address(centre));
    kind == SmoothingCentre::kMean ? mean(c) : middle(c);
    reach(c);
    const Gp f = e_.reg(c_.address(factor)), i = e_.reg(c_.address(inverse));
    varies(f);
    power(alpha, i);
    // f: whether the channel varies, or 0; most: the power of its reach
    e_.vector_vv(Op::V_MUL_VV, t_, most_, f);
    e_.vector_vf(Op::V_SUB_VF, f, f, kStatisticOne, 1);
    e_.vector_vv(Op::V_ADD_VV, f, t_, f);
    e_.vector_v(Op::V_RECI_V, i, f);
  }

 private:
  void extremes() {
    const Gp x = e_.reg(c_.address(first_));
    e_.shift(most_, x, Gp(), 1);
    e_.shift(least_, x, Gp(), 1);
    e_.loop(count_ - 1, [&] {
      e_.add(x, x, c_.vlen());
      e_.vector_vv(Op::V_MAX_VV, most_, most_, x);
      e_.vector_vv(Op::V_MIN_VV, least_, least_, x);
    });
  }

  void middle(const Gp& centre) {
    e_.load_fp(kStatistic, c_.number(0.5f));
    e_.vector_vf(Op::V_MUL_VF, centre, most_, kStatistic);
    e_.vector_vf(Op::V_MUL_VF, t_, least_, kStatistic);
    e_.vector_vv(Op::V_ADD_VV, centre, centre, t_);
  }

  void mean(const Gp& centre) {
    const float shrink = mean_shrink(c_.machine.lanes, count_);
    std::int64_t run = 1;
    int level = 0;
    for (; run * kMeanRun < count_; run *= kMeanRun) ++level;
    shrinks_ = shrink != 1.0f;
    if (shrinks_) e_.load_fp(kStatistic, c_.number(shrink));
    Sums sums{e_.reg(c_.address(first_)), e_.reg(c_.address(zero_row_)), {}};
    for (int i = 0; i <= level; ++i) sums.levels.push_back(e_.reg(c_.address(sums_ + i)));
    add_up(sums, level, count_, run);
    e_.load_fp(kStatistic, c_.number(1.0f / (shrink * static_cast<float>(count_))));
    e_.vector_vf(Op::V_MUL_VF, centre, sums.levels.back(), kStatistic);
  }

  struct Sums {
    Gp x, zero;
    std::vector<Gp> levels;
  };
  /// levels[level] <- the sum of `count` rows from x on, in runs of `run`; x moves past them.
  void add_up(const Sums& s, int level, std::int64_t count, std::int64_t run) {
    const Gp& sum = s.levels[to_size(level)];
    const Gp& below = level > 0 ? s.levels[to_size(level - 1)] : shrinks_ ? t_ : s.x;
    bool begun = false;
    const auto part = [&](std::int64_t rows) {
      if (level > 0) add_up(s, level - 1, rows, run / kMeanRun);
      if (level == 0 && shrinks_) e_.vector_vf(Op::V_MUL_VF, t_, s.x, kStatistic);
      e_.vector_vv(Op::V_ADD_VV, sum, begun ? sum : s.zero, below);
      if (level == 0) e_.add(s.x, s.x, c_.vlen());
      begun = true;
    };
    const std::int64_t whole = count / run;
    if (whole > 0) part(run);
    e_.loop(whole - 1, [&] { part(run); });
    if (count % run > 0) part(count % run);
  }

  /// most <- the largest distance from the centre.
  void reach(const Gp& centre) {
    e_.vector_vv(Op::V_SUB_VV, most_, most_, centre);
    e_.vector_vv(Op::V_SUB_VV, least_, centre, least_);
    e_.vector_vv(Op::V_MAX_VV, most_, most_, least_);
  }

  /// out <- 1 for a reach above 1 / smoothing_scale(), else 0.
  void varies(const Gp& out) {
    e_.load_fp(kStatisticScale, c_.number(smoothing_scale(c_.machine.lanes)));
    e_.load_fp(kStatisticOne, c_.one());
    e_.vector_vf(Op::V_MUL_VF, out, most_, kStatisticScale);
    e_.vector_vf(Op::V_SUB_VF, out, out, kStatisticOne);
    e_.vector_vf(Op::V_MAX_VF, out, out, 0);
    e_.vector_vf(Op::V_MUL_VF, out, out, kStatisticScale);
    e_.vector_vf(Op::V_MIN_VF, out, out, kStatisticOne);
  }

  /// most <- most^alpha.
  void power(double alpha, const Gp& scratch) {
    const int quarters = static_cast<int>(4 * alpha);
    if (quarters == 4) return;
    if (quarters == 0) {
      const Gp one = e_.reg(c_.address(one_row_));
      e_.shift(most_, one, Gp(), 1);
      return;
    }
    e_.vector_v(Op::V_SQRT_V, most_, most_);
    if (quarters == 2) return;
    e_.vector_v(Op::V_SQRT_V, scratch, most_);
    if (quarters == 1)
      e_.shift(most_, scratch, Gp(), 1);
    else
      e_.vector_vv(Op::V_MUL_VV, most_, most_, scratch);
  }

  StepContext& c_;
  Emitter& e_;
  std::int64_t first_, count_, zero_row_, one_row_, sums_ = 0;
  Gp most_, least_, t_;
  bool shrinks_ = false;
};

}  // namespace

Expected<void> channel_statistics(StepContext& c, SmoothingCentre centre, const ValuePlace& x, std::int64_t count,
                                  const ChannelRows& out) {
  const auto vlen = to_size(c.vlen());
  DLLM_TRY(const Buffer zero, c.constant_row(std::vector<Bf16>(vlen)));
  DLLM_TRY(const Buffer one, c.constant_row(std::vector<Bf16>(vlen, c.one())));
  DLLM_TRY(const Buffer scratch, c.acquire(SlabStatistics::kRows, "statistics of channels"));
  for (std::int64_t slab = 0; slab < x.slabs && !c.counts; ++slab)
    SlabStatistics(c, x.row + slab * x.stride, count, scratch, zero, one)
        .run(centre, c.machine.smoothing.alpha, out.centre.row + slab, out.factor.row + slab, out.inverse.row + slab);
  c.release(scratch);
  return {};
}

}  // namespace dllm::npu
