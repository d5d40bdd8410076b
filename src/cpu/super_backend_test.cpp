#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "cpu/cpu_backend.h"
#include "cpu/testing/tiny_model.h"

// The arithmetic `super` in a whole model.

namespace dllm::cpu {
namespace {

using test::TinyModel;
using test::TinyShape;

TinyModel model_of(TensorType type) {
  TinyShape shape;
  shape.type = type;
  return TinyModel(shape, 9);
}

std::unique_ptr<CpuBackend> make_backend(const TinyModel& model, const CpuOptions& options) {
  auto backend = CpuBackend::create(ModelDesc{}, model.factory(), model.weights(), options);
  EXPECT_TRUE(backend.has_value()) << (backend ? "" : backend.error().message());
  return std::move(*backend);
}

std::unique_ptr<KvCache> cache_of(CpuBackend& backend) {
  auto cache = backend.make_cache(33);
  EXPECT_TRUE(cache.has_value());
  return std::move(*cache);
}

/// Logits of positions [begin, end), whose predecessors are in the cache.
std::vector<float> logits_of(CpuBackend& backend, KvCache& cache, Position begin, Position end) {
  SequenceStep step;
  step.cache = &cache;
  for (Position p = begin; p < end; ++p) {
    step.plan.scored.push_back(p - begin);
    step.plan.rows.push_back({p, (p * 37 + p * p % 7) % 150});
  }
  step.plan.visible = {{0, end}};
  step.request.logits = true;
  auto scores = backend.forward(std::span(&step, 1));
  EXPECT_TRUE(scores.has_value());
  return std::move((*scores)[0].logits);
}

std::vector<float> logits_of(CpuBackend& backend) { return logits_of(backend, *cache_of(backend), 0, 33); }

TEST(SuperBackend, HasTheSameBitsOnEverySetAndForAnyThreadsAndRows) {
  for (const TensorType type : {TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0, TensorType::kQ8_0,
                                TensorType::kMXFP4, TensorType::kBF16, TensorType::kF16}) {
    const TinyModel model = model_of(type);
    CpuOptions options;
    options.isa = "scalar";
    options.threads = 1;
    const auto exact = make_backend(model, options);
    EXPECT_EQ(exact->arithmetic(), "exact");
    options.arithmetic = CpuArithmetic::kSuper;
    const auto oracle = make_backend(model, options);
    EXPECT_EQ(oracle->arithmetic(), "super");
    const std::vector<float> expected = logits_of(*oracle);
    EXPECT_NE(logits_of(*exact), expected);  // the rounding must differ, otherwise this tests nothing
    for (const CpuIsa& isa : cpu_isas())
      for (const int threads : {1, 3}) {
        if (!isa.available) continue;
        options.isa = isa.name;
        options.threads = threads;
        const auto backend = make_backend(model, options);
        EXPECT_EQ(logits_of(*backend), expected) << isa.name << ", " << threads << " threads";
        // The last rows again, at another place in a tile and with fewer neighbours.
        const auto cache = cache_of(*backend);
        logits_of(*backend, *cache, 0, 33);
        const std::vector<float> last = logits_of(*backend, *cache, 20, 33);
        EXPECT_EQ(last, std::vector<float>(expected.end() - static_cast<std::ptrdiff_t>(last.size()), expected.end()));
      }
  }
}

TEST(SuperBackend, TypesWithoutItStayExactAndSaySo) {
  const TinyModel model = model_of(TensorType::kF32);
  CpuOptions options;
  const auto exact = make_backend(model, options);
  options.arithmetic = CpuArithmetic::kSuper;
  const auto super = make_backend(model, options);
  EXPECT_EQ(super->arithmetic(), "exact");
  EXPECT_EQ(logits_of(*super), logits_of(*exact));
}

TEST(SuperBackend, AutoTakesItWithTilesOnly) {
  const TinyModel model = model_of(TensorType::kQ8_0);
  CpuOptions options;
  options.arithmetic = CpuArithmetic::kAuto;
  for (const CpuIsa& isa : cpu_isas()) {
    if (!isa.available) continue;
    options.isa = isa.name;
    EXPECT_EQ(make_backend(model, options)->arithmetic(), isa.name == "amx" ? "super" : "exact");
  }
}

TEST(SuperBackend, IsRefusedBesideFloatActivations) {
  const TinyModel model = model_of(TensorType::kQ8_0);
  CpuOptions options;
  options.activations = CpuActivations::kF32;
  EXPECT_EQ(make_backend(model, options)->arithmetic(), "f32");
  options.arithmetic = CpuArithmetic::kSuper;
  const auto refused = CpuBackend::create(ModelDesc{}, model.factory(), model.weights(), options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
}

}  // namespace
}  // namespace dllm::cpu
