// The arithmetic `residual`: `exact` of the rows, plus `exact` of what their codes leave of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "cpu/cpu_backend.h"
#include "cpu/kernels/test_data.h"
#include "cpu/linear.h"
#include "cpu/testing/backend_logits.h"
#include "cpu/testing/tiny_model.h"

namespace dllm::cpu {
namespace {

/// What codes with scales that are not rounded leave of the values, as docs/design/arithmetic.md defines it.
std::vector<float> left_by_codes(const std::vector<float>& x) {
  std::vector<float> rest(x.size());
  for (std::size_t first = 0; first < x.size(); first += 32) {
    float most = 0;
    for (std::size_t i = first; i < first + 32; ++i) most = std::max(most, std::abs(x[i]));
    const float scale = most / 127.f, inverse = 127.f / most;
    for (std::size_t i = first; i < first + 32; ++i) {
      const double code = std::nearbyint(std::clamp(x[i] * inverse, -127.f, 127.f));
      rest[i] = static_cast<float>(static_cast<double>(x[i]) - static_cast<double>(scale) * code);
    }
  }
  return rest;
}

/// Rows with one value that is far above the rest.
std::vector<float> outlier_rows(std::int64_t rows, std::int64_t k) {
  test::Random random(3);
  std::vector<float> x = test::random_floats(random, rows * k);
  for (std::int64_t r = 0; r < rows; ++r) x[static_cast<std::size_t>(r * k + (37 * r + 5) % k)] = 300.f;
  return x;
}

struct ResidualMatrix {
  std::int64_t k = 288, n = 90;
  std::vector<std::byte> data;
  std::vector<float> values, bias;
  WeightView view;

  explicit ResidualMatrix(TensorType type) {
    test::Random random(7);
    values = test::random_floats(random, k * n);
    bias = test::random_floats(random, n);
    data.resize(static_cast<std::size_t>(codec(type).row_bytes(k) * n));
    codec(type).quantize(values.data(), data.data(), k * n);
    codec(type).dequantize(data.data(), values.data(), k * n);
    view = {type, {k, n}, data};
  }

  std::vector<float> product(LinearRunner& runner, const PackedMatrix& packed, const float* added,
                             const std::vector<float>& x) const {
    const std::int64_t rows = static_cast<std::int64_t>(x.size()) / k;
    std::vector<float> out(static_cast<std::size_t>(rows * n));
    const LinearArgs args = runner.prepare(view, &packed.weight(), added, x.data(), rows, 0);
    const Product product{args, n, out.data(), runner.residual_rows(args, 0)};
    runner.run({&product, 1});
    runner.forget();
    return out;
  }

  double error(const std::vector<float>& got, const std::vector<float>& x) const {
    double sum = 0;
    for (std::size_t r = 0; r * static_cast<std::size_t>(k) < x.size(); ++r)
      for (std::size_t o = 0; o < static_cast<std::size_t>(n); ++o) {
        double expected = static_cast<double>(bias[o]);
        for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i)
          expected += static_cast<double>(x[r * static_cast<std::size_t>(k) + i]) *
                      static_cast<double>(values[o * static_cast<std::size_t>(k) + i]);
        const double difference = static_cast<double>(got[r * static_cast<std::size_t>(n) + o]) - expected;
        sum += difference * difference;
      }
    return std::sqrt(sum);
  }
};

TEST(Residual, IsTwoProductsOnEverySet) {
  for (const TensorType type : {TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ8_0}) {
    const ResidualMatrix matrix(type);
    for (const std::int64_t rows : {1, 5, 19}) {
      const std::vector<float> x = outlier_rows(rows, matrix.k), rest = left_by_codes(x);
      ThreadPool one(1), three(3);
      const PackedMatrix packed(matrix.view, one);
      LinearRunner exact(*test::available_sets().front(), one);
      std::vector<float> expected = matrix.product(exact, packed, matrix.bias.data(), x);
      const double before = matrix.error(expected, x);
      const std::vector<float> more = matrix.product(exact, packed, nullptr, rest);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += more[i];
      EXPECT_LT(50 * matrix.error(expected, x), before);
      for (const KernelSet* const set : test::available_sets())
        for (ThreadPool* const pool : {&one, &three}) {
          LinearRunner runner(*set, *pool, std::nullopt, true);
          EXPECT_EQ(matrix.product(runner, packed, matrix.bias.data(), x), expected) << set->name;
        }
    }
  }
}

std::vector<float> residual_logits(CpuBackend& backend) {
  const auto cache = *backend.make_cache(33);
  return test::logits_of(backend, *cache, 0, 33);
}

double logit_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
  return sum;
}

/// Norms and gates that quantize what they make, and the head, whose products are in pieces.
TEST(Residual, AWholeModelHasTheSameBitsOnEverySetAndIsNearItsFloats) {
  test::TinyShape shape;
  shape.type = TensorType::kQ8_0;
  const test::TinyModel model(shape, 9);
  CpuOptions options;
  options.isa = "scalar";
  options.threads = 1;
  options.kv = CpuKvType::kF32;
  const std::vector<float> exact = residual_logits(*test::make_backend(model, options));
  options.activations = CpuActivations::kF32;
  const std::vector<float> floats = residual_logits(*test::make_backend(model, options));
  options.activations = CpuActivations::kAuto;
  options.arithmetic = CpuArithmetic::kResidual;
  const auto oracle = test::make_backend(model, options);
  EXPECT_EQ(oracle->arithmetic(), "residual");
  const std::vector<float> expected = residual_logits(*oracle);
  EXPECT_LT(50 * logit_distance(expected, floats), logit_distance(exact, floats));
  for (const CpuIsa& isa : cpu_isas())
    for (const int threads : {1, 3}) {
      if (!isa.available) continue;
      options.isa = isa.name;
      options.threads = threads;
      const auto backend = test::make_backend(model, options);
      EXPECT_EQ(residual_logits(*backend), expected) << isa.name;
      EXPECT_EQ(residual_logits(**backend->beside(2)), expected) << isa.name << ", a second thread group";
    }
}

TEST(Residual, ModelsWithoutCodesStayExactAndSaySo) {
  const test::TinyModel model(test::TinyShape(), 9);
  CpuOptions options;
  const std::vector<float> exact = residual_logits(*test::make_backend(model, options));
  options.arithmetic = CpuArithmetic::kResidual;
  const auto backend = test::make_backend(model, options);
  EXPECT_EQ(backend->arithmetic(), "exact");
  EXPECT_EQ(residual_logits(*backend), exact);
}

TEST(Residual, AutoDoesNotTakeSuperForModelsThatReadFromLeftToRight) {
  test::TinyShape shape;
  shape.type = TensorType::kQ8_0;
  const test::TinyModel model(shape, 9);
  CpuOptions options;
  options.arithmetic = CpuArithmetic::kAuto;
  ModelDesc desc;
  desc.causal_block = 1;
  for (const CpuIsa& isa : cpu_isas()) {
    if (!isa.available) continue;
    options.isa = isa.name;
    EXPECT_EQ((*CpuBackend::create(desc, model.factory(), model.weights(), options))->arithmetic(), "exact");
  }
}

}  // namespace
}  // namespace dllm::cpu
