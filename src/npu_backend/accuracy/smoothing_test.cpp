// Smoothing of K and V does not change results in full precision, and planted outliers no longer affect other channels.

#include "npu_backend/accuracy/smoothing.h"

#include <cmath>
#include <functional>
#include <memory>
#include <string>

#include "npu_backend/accuracy/executor.h"
#include "npu_compiler/testing/reference/bench.h"

namespace dllm::npu {
namespace {

using accuracy::ChannelFactors, accuracy::Executor, accuracy::LaneKvCache, accuracy::NumericsProfile,
    accuracy::OperandFormat, accuracy::VectorPrecision;
using test::TinyShape, test::TinyWeights, test::range, test::small_machine;

TEST(Smoothing, FactorsAreThoseOfTheEquations) {
  const std::vector<float> rows[] = {{1, 7, -2}, {3, 7, 6}, {5, 7, -1}};
  const float* views[] = {rows[0].data(), rows[1].data(), rows[2].data()};
  const auto factors = [&](SmoothingCentre centre, double alpha) {
    return channel_factors(centre, {centre, centre, alpha}, VectorPrecision::kF32, views, 3);
  };
  const ChannelFactors mean = factors(SmoothingCentre::kMean, 1);
  EXPECT_EQ(mean.centre, (std::vector<float>{3, 7, 1}));
  EXPECT_EQ(mean.factor, (std::vector<float>{2, 1, 5})) << "a constant channel has factor 1";
  const ChannelFactors middle = factors(SmoothingCentre::kMinMax, 0.5);
  EXPECT_EQ(middle.centre, (std::vector<float>{3, 7, 2}));
  EXPECT_EQ(middle.factor, (std::vector<float>{std::sqrt(2.0f), 1, 2}));
  EXPECT_EQ(factors(SmoothingCentre::kMean, 0).factor, (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(factors(SmoothingCentre::kNone, 1).centre, (std::vector<float>{0, 0, 0}));
  std::vector<float> x = rows[1];
  smooth(mean, VectorPrecision::kF32, x);
  EXPECT_EQ(x, (std::vector<float>{0, 0, 1}));
}

NumericsProfile float_profile() {
  NumericsProfile profile;
  const OperandFormat f32 = *OperandFormat::from_name("f32");
  profile.weight = profile.activation = profile.key = profile.value = profile.logits = f32;
  profile.vector = VectorPrecision::kF32;
  return profile;
}

constexpr TinyShape kShape{.heads = 4, .kv_heads = 2, .head_dim = 32, .rope_dims = 32};

using GraphOf = std::function<Graph(StepShape)>;

/// A model in the formats of a profile, with its own cache.
class Simulated {
 public:
  Simulated(GraphOf graph, const TinyWeights& weights, NumericsProfile profile)
      : graph_(std::move(graph)),
        profile_(std::move(profile)),
        layout_(*make_layout(graph_({1, 1}), weights.present(), machine(), 64)) {
    layout_.chunk_tiles = 2;
    executor_ = std::make_unique<Executor>(graph_({1, 1}), layout_, weights.views(), profile_, 1);
    cache_ = std::make_unique<LaneKvCache>(Position{48}, executor_->head_shapes(), profile_.smoothing, profile_.vector);
  }

  /// What the head gives for all rows.
  std::vector<float> step(const std::vector<Position>& positions, std::vector<PositionRange> visible) {
    SequenceStep step;
    step.cache = cache_.get();
    for (const Position p : positions) {
      step.plan.scored.push_back(static_cast<std::int32_t>(step.plan.rows.size()));
      step.plan.rows.push_back({p, static_cast<TokenId>((7 * p + calls_) % kShape.vocab)});
    }
    step.plan.visible = std::move(visible);
    calls_ += 3;
    const auto rows = static_cast<std::int64_t>(positions.size());
    return executor_->forward(graph_({rows, rows}), {&step, 1});
  }

  /// A warm step over 40 positions, rows of a block over its cache, a warm step that only sees the last 24, rows over
  /// both segments.
  std::vector<float> four_steps() {
    std::vector<float> all;
    const auto add = [&](const std::vector<float>& logits) { all.insert(all.end(), logits.begin(), logits.end()); };
    add(step(range(0, 40), {{0, 40}}));
    add(step(range(30, 6), {{0, 40}}));
    add(step(range(16, 24), {{16, 40}}));
    add(step({5, 33, 39}, {{0, 40}}));
    return all;
  }
  const LaneKvCache& cache() const { return *cache_; }

 private:
  static MachineConfig machine() {
    MachineConfig m = small_machine();
    m.mlen = 64, m.hlen = 32;
    m.mram_elements = std::uint64_t{64 * 64} * 32;
    return m;
  }

  GraphOf graph_;
  NumericsProfile profile_;
  ModelLayout layout_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<LaneKvCache> cache_;
  int calls_ = 1;
};

GraphOf whole(const TinyShape& shape) {
  return [shape](StepShape step) { return tiny_graph(shape, step); };
}

/// Attention alone: unit matrices after it give the outputs of all query heads.
Graph attention_graph(StepShape step) {
  const std::int64_t width = kShape.width, wide = kShape.heads * kShape.head_dim,
                     narrow = kShape.kv_heads * kShape.head_dim;
  GraphBuilder b(step);
  const ValueId x = b.embed(b.weight("embd", {width, kShape.vocab}), "x");
  const ValueId a = b.rms_norm(x, b.weight("norm", {width}), 1e-5f, "a");
  const ValueId q = b.linear(a, b.weight("q", {width, wide}), "q");
  const WeightId bias = b.weight("0.k.bias", {narrow});
  const ValueId k = b.linear(a, b.weight("k", {width, narrow}), "k", bias);
  const ValueId v = b.linear(a, b.weight("v", {width, narrow}), "v");
  const auto rope = [&](ValueId id, std::int64_t heads, const char* name) {
    op::Rope turn{};
    turn.heads = static_cast<std::int32_t>(heads), turn.head_dim = static_cast<std::int32_t>(kShape.head_dim);
    turn.dims = turn.head_dim, turn.theta = 10000.f, turn.scale = 0.5f, turn.factors = kNoId;
    return b.rope(id, turn, name);
  };
  b.store_kv(rope(k, kShape.kv_heads, "kr"), v, 0);
  op::Attention spec{};
  spec.heads = static_cast<std::int32_t>(kShape.heads), spec.kv_heads = static_cast<std::int32_t>(kShape.kv_heads);
  spec.head_dim = static_cast<std::int32_t>(kShape.head_dim);
  spec.scale = 0.5f / std::sqrt(static_cast<float>(kShape.head_dim));
  const ValueId mixed = b.attention(rope(q, kShape.heads, "qr"), spec, "mix");
  const ValueId out = b.linear(mixed, b.weight("o.unit", {wide, wide}), "out");
  b.score_head(b.gather_scored(out, "scored"), b.weight("unit", {wide, wide}), kNoId);
  return b.take();
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(sum / size);
}

/// In float32, smoothed attention equals plain attention, also for segments with different centres.
TEST(Smoothing, ChangesNothingInFullPrecision) {
  for (const RopeLayout layout : {RopeLayout::kHalfSplit, RopeLayout::kInterleaved}) {
    TinyShape shape = kShape;
    shape.layout = layout;
    const TinyWeights weights(tiny_graph(shape, {1, 1}), 5);
    const std::vector<float> plain = Simulated(whole(shape), weights, float_profile()).four_steps();
    for (const SmoothingCentre centre : {SmoothingCentre::kMean, SmoothingCentre::kMinMax})
      for (const double alpha : {0.0, 0.5, 1.0}) {
        NumericsProfile profile = float_profile();
        profile.smoothing = {centre, centre, alpha};
        Simulated smoothed(whole(shape), weights, profile);
        EXPECT_LT(distance(smoothed.four_steps(), plain), 3e-6) << smoothing_centre_name(centre) << " " << alpha;
        EXPECT_EQ(smoothed.cache().segments(0).size(), 2u) << "the test means to mix segments";
        EXPECT_NE(smoothed.cache().segment_of(0, 5), smoothed.cache().segment_of(0, 3));
      }
  }
}

/// Keys with channels far from zero, 13 and 19 times as large as the others, as DART reports them. The error of four
/// bits without outliers is the floor; the additional error with outliers and without smoothing is the gap.
void expect_recovered(const GraphOf& graph) {
  TinyWeights calm(graph({1, 1}), 5), loud(graph({1, 1}), 5);
  calm.fill(".k.bias", [](std::size_t) { return 0.0f; });
  loud.fill(".k.bias", [](std::size_t i) { return i % 32 == 15 ? 19.0f : i % 32 == 30 ? -13.0f : 0.0f; });
  for (TinyWeights* weights : {&calm, &loud})
    weights->fill("unit", [](std::size_t i) {
      constexpr auto kWidth = static_cast<std::size_t>(kShape.heads * kShape.head_dim);
      return i / kWidth == i % kWidth ? 1.0f : 0.0f;
    });
  const auto error = [&](const TinyWeights& weights, const Smoothing& smoothing) {
    NumericsProfile profile = float_profile();
    profile.key = profile.value = *OperandFormat::from_name("mxint4:32:ocp");
    profile.smoothing = smoothing;
    return distance(Simulated(graph, weights, profile).four_steps(),
                    Simulated(graph, weights, float_profile()).four_steps());
  };
  const double without = error(loud, {});
  ASSERT_GT(without, 2 * error(calm, {})) << "the outliers must hurt";
  for (const SmoothingCentre centre : {SmoothingCentre::kMean, SmoothingCentre::kMinMax}) {
    const Smoothing smoothing{centre, centre, 1};
    const double floor = error(calm, smoothing), with = error(loud, smoothing);
    const double recovered = (without - with) / (without - floor);
    testing::Test::RecordProperty(std::string(smoothing_centre_name(centre)), std::to_string(recovered));
    EXPECT_GT(recovered, 0.9) << smoothing_centre_name(centre) << ": " << floor << " " << with << " " << without;
  }
}

TEST(Smoothing, RecoversTheAttentionOutputsThatPlantedOutliersCost) { expect_recovered(attention_graph); }

TEST(Smoothing, RecoversTheLogitsThatPlantedOutliersCost) {
  TinyShape shape = kShape;
  shape.layers = 1;
  expect_recovered(whole(shape));
}

}  // namespace
}  // namespace dllm::npu
