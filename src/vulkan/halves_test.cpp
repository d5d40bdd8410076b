// The arithmetic `f16`: rows as halves bit for bit, products on matrix units within the bound of any order of sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/kernels/test_data.h"
#include "cpu/packed_weights.h"
#include "cpu/testing/backend_logits.h"
#include "cpu/testing/tiny_model.h"
#include "vulkan/on_device.h"
#include "vulkan/operators.h"
#include "vulkan/peaks.h"
#include "vulkan/testing/operator_rig.h"
#include "vulkan/testing/test_device.h"
#include "vulkan/weights.h"

namespace dllm::vulkan {
namespace {

using cpu::test::random_floats;
using test::difference;
using test::OperatorRig;
using test::test_device;

/// A row as docs/design/arithmetic.md defines it: numbers of 11 bits times a power of two.
struct HalfRow {
  std::vector<double> values;
  float scale = 0;
};

HalfRow half_row(const float* x, std::int64_t k) {
  HalfRow row;
  row.values.resize(static_cast<std::size_t>(k));
  float most = 0;
  for (std::int64_t i = 0; i < k; ++i) {
    if (!std::isfinite(x[i])) {
      row.scale = std::nanf("");
      return row;
    }
    most = std::max(most, std::abs(x[i]));
  }
  if (most < 0x1p-112f) return row;
  const int exponent = std::ilogb(most);
  row.scale = std::ldexp(1.f, exponent - 14);
  for (std::int64_t i = 0; i < k; ++i) {
    if (x[i] == 0 || std::ilogb(x[i]) < exponent - 28) continue;
    // To 11 bits, ties to even: what adding and subtracting 3 x 2^51 units of the last bit does in float64.
    const double unit = std::ldexp(1.0, std::ilogb(x[i]) - 10), magic = 0x1.8p52 * unit;
    row.values[static_cast<std::size_t>(i)] = (static_cast<double>(x[i]) + magic - magic) / row.scale;
  }
  return row;
}

double value_of_half(std::uint16_t bits) {
  float value = 0;
  codec(TensorType::kF16).dequantize(reinterpret_cast<const std::byte*>(&bits), &value, 1);
  return value;
}

Arithmetic with_halves() {
  Arithmetic arithmetic = OperatorRig::operators().arithmetic();
  arithmetic.halves = true;
  return arithmetic;
}

class Halves : public test::OnOperators {
 protected:
  void SetUp() override {
    OnOperators::SetUp();
    if (test_device()) operators_.emplace(test_device(), with_halves());
  }

  std::optional<Operators> operators_;
};

TEST_F(Halves, RowsAreRoundedOnceWithAPowerOfTwoEach) {
  const std::int64_t k = 77, rows = 8, words = half_words(k);
  EXPECT_EQ(words, 40);
  auto x = random_floats(random_, rows * k, 30.f);
  for (std::int64_t i = 0; i < k; ++i) {
    x[static_cast<std::size_t>(k + i)] = std::ldexp(x[static_cast<std::size_t>(k + i)], static_cast<int>(i % 60) - 50);
    x[static_cast<std::size_t>(2 * k + i)] *= 0x1p-120f;
    x[static_cast<std::size_t>(3 * k + i)] = i == 5 ? 0x1.fffffep127f : 1.f;
    // The largest rounds up to a power of two, others are ties.
    x[static_cast<std::size_t>(4 * k + i)] = i == 9 ? 0x1.ffffp3f : 1.f + static_cast<float>(i) * 0x1p-11f;
  }
  // Just below the least row that is none of zeros.
  for (std::int64_t i = 0; i < k; ++i) x[static_cast<std::size_t>(7 * k + i)] = i == 4 ? 0x1.fffffep-113f : 0x1p-115f;
  x[5 * k + 3] = std::numeric_limits<float>::infinity();
  x[6 * k + 76] = std::nanf("");
  const auto halves = rig_.room(rows * words), scales = rig_.room(rows);
  rig_.run(operators_->halves(k, rig_.put(x), {halves, scales, 0}), rows);
  const auto seen = rig_.get<std::uint16_t>(halves, rows * words * 2);
  const auto seen_scales = rig_.get(scales, rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    const HalfRow right = half_row(x.data() + r * k, k);
    EXPECT_EQ(difference<float>({seen_scales[static_cast<std::size_t>(r)]}, {right.scale}), "") << r;
    for (std::int64_t i = 0; i < 2 * words; ++i)
      ASSERT_EQ(value_of_half(seen[static_cast<std::size_t>(r * 2 * words + i)]),
                i < k ? right.values[static_cast<std::size_t>(i)] : 0.0)
          << r << ' ' << i;
  }
  EXPECT_TRUE(std::isnan(seen_scales[5]) && std::isnan(seen_scales[6]));
}

TEST(HalfExponent, IsOfTheLargestMagnitude) {
  ThreadPool pool(1);
  const auto of = [&](TensorType type, std::vector<float> values) {
    std::vector<std::byte> data(values.size() * 2);
    codec(type).quantize(values.data(), data.data(), static_cast<std::int64_t>(values.size()));
    return half_exponent({type, {static_cast<std::int64_t>(values.size())}, data}, pool);
  };
  for (const TensorType type : {TensorType::kF16, TensorType::kBF16}) {
    EXPECT_EQ(of(type, {0.25f, -3.f, 1.f}), 128);
    EXPECT_EQ(of(type, {0.f, 0.f}), std::nullopt) << "nothing to scale";
    EXPECT_EQ(of(type, {1.f, std::numeric_limits<float>::infinity()}), std::nullopt);
    EXPECT_EQ(of(type, {1.f, std::nanf("")}), std::nullopt);
  }
  const std::vector<std::byte> odd = {std::byte{0xff}, std::byte{0x80}, std::byte{0x3f}};
  EXPECT_EQ(half_exponent({TensorType::kBF16, {1}, std::span(odd).subspan(1)}, pool), 127) << "at an odd address";
  EXPECT_EQ(of(TensorType::kBF16, {0x1p-100f}), std::nullopt) << "products would be subnormal";
  const std::vector<float> floats = {1.f};
  EXPECT_EQ(half_exponent({TensorType::kF32, {1}, std::as_bytes(std::span(floats))}, pool), std::nullopt);
}

TEST(DevicePeaks, HaveTheirRatesNames) {
  DevicePeaks peaks;
  peaks.dots = 3, peaks.matrices = 2, peaks.halves = 5, peaks.floats = 1;
  peaks.half_shape = {16, 8, 16};
  const cpu::Peaks all = peaks.summary();
  EXPECT_EQ(all.threads, 0);
  EXPECT_EQ(all.int8.per_second, 3);
  EXPECT_EQ(all.f16.per_second, 5);
  EXPECT_EQ(all.f16.instruction, "F16 matrices of 16 x 8 x 16");
  EXPECT_EQ(all.bf16.per_second, 0) << "no shader multiplies these";
}

TEST(HalfShape, IsOneThatIsBuilt) {
  DeviceFacts facts;
  facts.subgroup = 32;
  EXPECT_FALSE(half_shape_of(facts));
  facts.half_matrices = {{16, 16, 16}, {16, 8, 16}};
  EXPECT_EQ(*half_shape_of(facts), (MatrixShape{16, 8, 16}));
  facts.half_matrices = {{16, 16, 16}, {32, 8, 16}};
  EXPECT_EQ(*half_shape_of(facts), (MatrixShape{16, 16, 16}));
  facts.subgroup = 0;
  EXPECT_FALSE(half_shape_of(facts)) << "its subgroups are not always as large";
  for (const MatrixShape shape : {MatrixShape{16, 8, 16}, MatrixShape{16, 16, 16}, MatrixShape{8, 8, 8}})
    for (const std::uint32_t rows : {shape.n, 32U})
      for (const ShaderForm form :
           {ShaderForm::kNative, ShaderForm::kGuarded, ShaderForm::kFloat64, ShaderForm::kSubnormals})
        EXPECT_TRUE(std::ranges::any_of(shaders(), [&](const Shader& one) {
          return one.name == half_product(shape, rows) && one.form == form;
        })) << half_product(shape, rows);
}

TEST_F(Halves, AreRefusedByNameWhereTheDeviceHasNone) {
  if (half_shape_of(test_device()->facts())) {
    EXPECT_TRUE(test_halves(test_device(), OperatorRig::operators().arithmetic()));
    return;
  }
  const auto refused = test_halves(test_device(), OperatorRig::operators().arithmetic());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(refused.error().where, "--arithmetic");
  EXPECT_NE(refused.error().what.find("has no matrix units for F16"), std::string::npos) << refused.error().what;
}

/// Products on the device's matrix units.
class HalfProducts : public Halves, public testing::WithParamInterface<TensorType> {
 protected:
  void SetUp() override {
    Halves::SetUp();
    if (test_device() && !half_shape_of(test_device()->facts())) GTEST_SKIP() << "no matrices of F16";
  }

  struct Matrix {
    std::vector<float> values;  ///< [n][k], of one matrix after the other
    DeviceMatrix device;
  };
  Matrix make(std::int64_t k, std::int64_t n, std::int64_t experts) {
    const std::int64_t count = k * n * experts;
    auto bytes = cpu::test::random_words(random_, GetParam(), count);
    Matrix made;
    made.values.resize(static_cast<std::size_t>(count));
    codec(GetParam()).dequantize(bytes.data(), made.values.data(), count);
    ThreadPool pool(1);
    const std::vector<std::int64_t> shape = experts == 1 ? std::vector{k, n} : std::vector{k, n, experts};
    const WeightView view{GetParam(), shape, bytes};
    const cpu::PackedMatrix packed(view, pool);
    const cpu::PackedWeight& weight = packed.weight();
    const std::span<const std::uint8_t> panels(weight.panels,
                                               static_cast<std::size_t>(weight.panel_count() * weight.panel_bytes()));
    made.device = {
        rig_.put(panels),         weight.format, weight.layout, k, n, weight.panels_per_expert() * weight.panel_bytes(),
        half_exponent(view, pool)};
    return made;
  }

  DeviceCodes rounded(VkDeviceAddress x, std::int64_t rows, std::int64_t k) {
    const DeviceCodes halves{rig_.room(rows * half_words(k)), rig_.room(rows), 0};
    rig_.run(operators_->halves(k, x, halves), rows);
    return halves;
  }

  /// Whether a sum of products is what any order of sums in F32 may give.
  static void expect_near(float seen, const float* x, const float* weights, std::int64_t k, double bias) {
    const HalfRow row = half_row(x, k);
    double sum = 0, magnitude = 0;
    for (std::int64_t i = 0; i < k; ++i) {
      const double product = row.values[static_cast<std::size_t>(i)] * row.scale * static_cast<double>(weights[i]);
      sum += product, magnitude += std::abs(product);
    }
    EXPECT_NEAR(seen, sum + bias, static_cast<double>(k) * 0x1p-23 * magnitude + std::abs(bias) * 0x1p-23) << k;
  }
};

TEST_P(HalfProducts, AreSumsOfRoundedRows) {
  for (const auto& [rows, k, n, biased] :
       {std::tuple{1, 64, 16, false}, {9, 77, 33, true}, {33, 150, 70, false}, {8, 1, 5, true}}) {
    const Matrix matrix = make(k, n, 1);
    ASSERT_TRUE(matrix.device.half_exponent);
    const auto x = random_floats(random_, rows * k, 4.f), bias = random_floats(random_, n);
    const DeviceCodes halves = rounded(rig_.put(x), rows, k);
    const auto count = rig_.put(std::vector<std::int32_t>{rows});
    std::vector<float> first;
    for (const std::int64_t most : {std::int64_t{rows}, std::int64_t{64}}) {  // tiles of a few rows, and of 32
      const auto out = rig_.room(rows * n + 1);
      rig_.run(operators_->linear(matrix.device, 0, halves, biased ? rig_.put(bias) : 0, {count, most}, out), rows);
      const auto seen = rig_.get(out, rows * n + 1);
      EXPECT_EQ(seen.back(), OperatorRig::kUntouched);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t o = 0; o < n; ++o)
          expect_near(seen[static_cast<std::size_t>(r * n + o)], x.data() + r * k, matrix.values.data() + o * k, k,
                      biased ? bias[static_cast<std::size_t>(o)] : 0);
      if (first.empty()) first = seen;
      EXPECT_EQ(difference(seen, first), "") << "a row's sums do not depend on its tile";
    }
  }
}

TEST_P(HalfProducts, OfEveryPairOfARowAndAnExpert) {
  const std::int64_t rows = 23, used = 3, experts = 5, k = 70, n = 20;
  const Matrix matrix = make(k, n, experts);
  std::vector<float> route;
  for (std::int64_t r = 0; r < rows; ++r) {
    // Expert 4 has more rows than a tile, expert 1 none.
    for (const std::int64_t e : {std::int64_t{0} + r % 2 * 2, std::int64_t{3}, std::int64_t{4}})
      route.push_back(static_cast<float>(e));
    route.insert(route.end(), {0.5f, 0.25f, 0.25f});
  }
  const auto count = rig_.put(std::vector<std::int32_t>{static_cast<std::int32_t>(rows)}), routes = rig_.put(route);
  for (const bool shared : {true, false}) {
    const std::int64_t sources = shared ? rows : rows * used;
    const auto x = random_floats(random_, sources * k, 4.f);
    const DeviceCodes halves = rounded(rig_.put(x), sources, k);
    const auto out = rig_.room(rows * used * n + 1);
    rig_.run(operators_->linear(matrix.device, 0, halves, 0, {count, rows}, out, {routes, used, shared, experts}),
             rows * used);
    const auto seen = rig_.get(out, rows * used * n + 1);
    EXPECT_EQ(seen.back(), OperatorRig::kUntouched);
    for (std::int64_t pair = 0; pair < rows * used; ++pair) {
      const auto expert =
          static_cast<std::int64_t>(route[static_cast<std::size_t>(pair / used * 2 * used + pair % used)]);
      for (std::int64_t o = 0; o < n; ++o)
        expect_near(seen[static_cast<std::size_t>(pair * n + o)], x.data() + (shared ? pair / used : pair) * k,
                    matrix.values.data() + (expert * n + o) * k, k, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BothTypes, HalfProducts, testing::Values(TensorType::kF16, TensorType::kBF16),
                         [](const auto& param) { return std::string(codec(param.param).name); });

TEST_F(Halves, OfAWholeModelAreNearThoseOfExact) {
  if (!half_shape_of(test_device()->facts())) GTEST_SKIP() << "no matrices of F16";
  for (const TensorType type : {TensorType::kF16, TensorType::kBF16}) {
    cpu::test::TinyShape shape;
    shape.type = type;
    const cpu::test::TinyModel model(shape);
    CpuOptions here;
    here.threads = 1;
    const auto exact = cpu::test::make_backend(model, here);
    VulkanOptions options;
    options.threads = 1;
    const auto device =
        make_backend_on(test_device(), with_halves(), ModelDesc{}, model.factory(), model.weights(), options);
    ASSERT_TRUE(device) << device.error().message();
    EXPECT_EQ((*device)->arithmetic(), "f16");
    SequenceStep step;
    for (Position p = 0; p < 20; ++p) {
      step.plan.rows.push_back({p, p * 37 % 150});
      step.plan.scored.push_back(p);
    }
    step.plan.visible = {{0, 20}};
    step.request.logits = true;
    const auto one = *exact->make_cache(64), other = *(*device)->make_cache(64);
    step.cache = one.get();
    const auto expected = (*exact->forward({&step, 1}))[0].logits;
    step.cache = other.get();
    const auto seen = (*(*device)->forward({&step, 1}))[0].logits;
    ASSERT_EQ(seen.size(), expected.size());
    double most = 0, error = 0;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(expected[i])));
      error = std::max(error, std::abs(static_cast<double>(seen[i]) - static_cast<double>(expected[i])));
    }
    // Rows lose 2^-12 each; those of BF16 lose 2^-9 in `exact`.
    EXPECT_LT(error, most * (type == TensorType::kF16 ? 0.01 : 0.05));
    EXPECT_GT(error, 0) << "it is another arithmetic";
  }
}

TEST_F(Halves, NeedAMatrixOfF16OrBf16) {
  if (!half_shape_of(test_device()->facts())) GTEST_SKIP() << "no matrices of F16";
  const cpu::test::TinyModel model(cpu::test::TinyShape{});
  VulkanOptions options;
  options.threads = 1;
  const auto refused =
      make_backend_on(test_device(), with_halves(), ModelDesc{}, model.factory(), model.weights(), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(), "--arithmetic: no matrix of the model is F16 or BF16 (leave it out)");
}

}  // namespace
}  // namespace dllm::vulkan
