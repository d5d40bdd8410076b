#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "cpu/cpu_backend.h"
#include "cpu/testing/backend_logits.h"
#include "cpu/testing/tiny_model.h"

// The arithmetic `super` in a whole model.

namespace dllm::cpu {
namespace {

using test::logits_of;
using test::make_backend;
using test::TinyModel;
using test::TinyShape;

TinyModel model_of(TensorType type) {
  TinyShape shape;
  shape.type = type;
  return TinyModel(shape, 9);
}

std::unique_ptr<KvCache> cache_of(CpuBackend& backend) {
  auto cache = backend.make_cache(33);
  EXPECT_TRUE(cache.has_value());
  return std::move(*cache);
}

std::vector<float> all_logits(CpuBackend& backend) { return logits_of(backend, *cache_of(backend), 0, 33); }

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
    const std::vector<float> expected = all_logits(*oracle);
    EXPECT_NE(all_logits(*exact), expected);  // the rounding must differ, otherwise this tests nothing
    for (const CpuIsa& isa : cpu_isas())
      for (const int threads : {1, 3}) {
        if (!isa.available) continue;
        options.isa = isa.name;
        options.threads = threads;
        const auto backend = make_backend(model, options);
        EXPECT_EQ(all_logits(*backend), expected) << isa.name << ", " << threads << " threads";
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
  EXPECT_EQ(all_logits(*super), all_logits(*exact));
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
