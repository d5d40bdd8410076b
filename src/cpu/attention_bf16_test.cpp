// The arithmetic `bf16` of attention, implemented again in plain code from docs/design/arithmetic.md, against every
// form of every kernel set of this machine, and in a whole model.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "cpu/cpu_backend.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/testing/attention_problem.h"
#include "cpu/testing/backend_logits.h"
#include "cpu/testing/tiny_model.h"
#include "numerics/tensor_type.h"

namespace dllm::cpu {
namespace {

using test::kEverything;
using test::kTypes;
using test::logits_of;
using test::make_backend;
using test::Problem;

/// To nearest even; neither infinite nor NaN.
double nearest_bf16(double x) {
  if (x == 0) return 0;
  int exponent;
  const double fraction = std::frexp(x, &exponent);  // in [1/2, 1)
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8);
}
double limited_bf16(float x) {
  const double rounded = nearest_bf16(static_cast<double>(x));
  return std::fabs(rounded) < 0x1p-55 ? 0 : std::clamp(rounded, -0x1p54, 0x1p54);
}

/// Sums in double precision; the weights of each tile are rounded to BF16 beside the maximum so far.
std::vector<double> definition(const Problem& problem, const std::vector<KeyRange>& ranges, std::int64_t query) {
  const auto dim = static_cast<std::size_t>(problem.head_dim);
  const auto operands = [&](const std::vector<std::byte>& from, std::int64_t p) {
    std::vector<float> row(dim);
    codec(problem.type).dequantize(from.data() + p * problem.row_bytes, row.data(), problem.head_dim);
    std::vector<double> values;
    for (const float x : row) values.push_back(limited_bf16(x));
    return values;
  };
  const bool rotated = problem.type == TensorType::kQ4_0;
  std::vector<float> turned(problem.q.begin() + query * problem.head_dim,
                            problem.q.begin() + (query + 1) * problem.head_dim);
  const float factor = problem.scale * 1.44269504f * (rotated ? 0.25f : 1.f);
  for (float& x : turned) x *= factor;
  if (rotated)
    for (std::size_t block = 0; block < dim; block += 32)
      for (std::size_t step = 1; step < 32; step *= 2)
        for (std::size_t i = 0; i < 32; ++i) {
          if ((i & step) != 0) continue;
          const float a = turned[block + i], b = turned[block + i + step];
          turned[block + i] = a + b, turned[block + i + step] = a - b;
        }
  double top = -1e30, sum = 0;
  std::vector<double> out(dim, 0);
  for (std::int64_t tile = 0; tile < problem.positions; tile += kKeyTile) {
    std::vector<std::int64_t> visible;
    for (const KeyRange& range : ranges)
      for (std::int64_t p = std::max(range.begin, tile); p < std::min(range.end, tile + kKeyTile); ++p)
        if (p < problem.limits[static_cast<std::size_t>(query / problem.group)]) visible.push_back(p);
    std::vector<double> scores;
    const double before = top;
    for (const std::int64_t p : visible) {
      const std::vector<double> key = operands(problem.k, p);
      double score = 0;
      for (std::size_t d = 0; d < dim; ++d) score += limited_bf16(turned[d]) * key[d];
      scores.push_back(score);
      top = std::max(top, score);
    }
    const double scale = std::exp2(std::max(before - top, -125.0));
    sum *= scale;
    for (double& x : out) x *= scale;
    for (std::size_t i = 0; i < visible.size(); ++i) {
      const double weight = nearest_bf16(std::exp2(std::max(scores[i] - top, -55.0)));
      sum += weight;
      const std::vector<double> value = operands(problem.v, visible[i]);
      for (std::size_t d = 0; d < dim; ++d) out[d] += weight * value[d];
    }
  }
  for (double& x : out) x = sum == 0 ? 0 : x / sum;
  return out;
}

std::vector<AttentionForm> rounded_forms(const KernelSet& set) {
  std::vector<AttentionForm> forms = test::forms_of(set);
  forms.erase(forms.begin());
  return forms;
}

TEST(AttentionBf16, MatchesItsDefinition) {
  const std::vector<KeyRange> ranges = {{2, 3}, {7, 40}, {70, 131}, {199, 200}};
  for (const KernelSet* set : test::available_sets())
    for (const AttentionForm form : rounded_forms(*set))
      for (const TensorType type : kTypes)
        for (const std::int64_t dim : {8, 24, 64, 80, 128, 160}) {
          if (dim % codec(type).block_elems != 0) continue;
          SCOPED_TRACE(std::string(set->name) + " " + std::string(codec(type).name) + " " + std::to_string(dim));
          Problem problem(type, dim, 200, 19, 2, 5);
          problem.form = form;
          problem.limits = {0, 1, 2, 3, 8, 40, 64, 65, 100, 200};
          problem.limits.resize(19, kEverything);
          const std::vector<float> out = problem.run(*set, ranges);
          int apart = 0;
          for (std::int64_t query = 0; query < 38; ++query) {
            const std::vector<double> expected = definition(problem, ranges, query);
            double most = 0;
            for (std::size_t d = 0; d < expected.size(); ++d)
              most = std::max(
                  most, std::fabs(static_cast<double>(out[static_cast<std::size_t>(query * dim) + d]) - expected[d]));
            // A score's last bits can decide how its weight is rounded.
            EXPECT_LT(most, 0x1p-8);
            if (most > 1e-5) ++apart;
          }
          EXPECT_LE(apart, 4);
        }
}

TEST(AttentionBf16, OutliersAreLimitedAndInfinitiesShow) {
  for (const KernelSet* set : test::available_sets())
    for (const AttentionForm form : rounded_forms(*set)) {
      Problem problem(TensorType::kF32, 32, 70, 20, 1, 4);
      problem.form = form;
      const auto put = [&](std::vector<std::byte>& rows, std::int64_t position, float x) {
        std::memcpy(rows.data() + position * problem.row_bytes, &x, 4);
      };
      put(problem.k, 3, 1e30f);
      put(problem.k, 9, -1e-30f);
      put(problem.v, 5, -3e38f);
      put(problem.v, 66, 1e-40f);
      for (const float x : problem.run(*set, {{0, 70}})) ASSERT_TRUE(std::isfinite(x)) << set->name;
      put(problem.v, 5, std::numeric_limits<float>::infinity());
      const std::vector<float> out = problem.run(*set, {{0, 70}});
      for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i % 32 == 0) << set->name;
      put(problem.k, 3, -std::numeric_limits<float>::infinity());
      for (const float x : problem.run(*set, {{0, 70}})) ASSERT_TRUE(std::isnan(x)) << set->name;
    }
}

TEST(AttentionBf16, AModelHasTheSameBitsOnEverySetAndForAnyThreadsAndRows) {
  test::TinyShape shape;
  shape.type = TensorType::kQ8_0;
  const test::TinyModel model(shape, 9);
  for (const CpuKvType kv : {CpuKvType::kF16, CpuKvType::kBF16, CpuKvType::kF32}) {
    CpuOptions options;
    options.isa = "scalar", options.threads = 1, options.kv = kv;
    const auto plain = make_backend(model, options);
    EXPECT_EQ(plain->arithmetic(), "exact");
    options.attention = CpuAttention::kBF16;
    const auto oracle = make_backend(model, options);
    EXPECT_EQ(oracle->arithmetic(), "exact, attention bf16");
    const std::vector<float> expected = logits_of(*oracle, **oracle->make_cache(90), 0, 90);
    EXPECT_NE(logits_of(*plain, **plain->make_cache(90), 0, 90), expected);  // otherwise this tests nothing
    for (const CpuIsa& isa : cpu_isas())
      for (const int threads : {1, 3}) {
        if (!isa.available) continue;
        options.isa = isa.name, options.threads = threads;
        const auto backend = make_backend(model, options);
        const auto cache = *backend->make_cache(90);
        EXPECT_EQ(logits_of(*backend, *cache, 0, 90), expected) << isa.name << ", " << threads << " threads";
        const std::vector<float> last = logits_of(*backend, *cache, 85, 90);
        EXPECT_EQ(last, std::vector<float>(expected.end() - static_cast<std::ptrdiff_t>(last.size()), expected.end()));
      }
  }
}

TEST(AttentionBf16, AutoTakesItWhereItIsFastAndWeightsAreQuantizedAndFloatActivationsRefuseIt) {
  test::TinyShape shape;
  shape.type = TensorType::kBF16;
  const test::TinyModel floats(shape, 9);
  shape.type = TensorType::kQ8_0;
  const test::TinyModel model(shape, 9);
  CpuOptions options;
  options.attention = CpuAttention::kAuto;
  EXPECT_EQ(make_backend(floats, options)->arithmetic(), "exact");
  for (const CpuIsa& isa : cpu_isas()) {
    if (!isa.available) continue;
    options.isa = isa.name;
    const bool fast = bf16_attention(*find_kernel_set(isa.name.c_str())) != AttentionForm::kChains;
    EXPECT_EQ(make_backend(model, options)->arithmetic(), fast ? "exact, attention bf16" : "exact");
  }
  options.activations = CpuActivations::kF32;
  const auto refused = CpuBackend::create(ModelDesc{}, model.factory(), model.weights(), options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
}

}  // namespace
}  // namespace dllm::cpu
