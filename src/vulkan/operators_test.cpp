// Every operator on the device against the scalar kernels: 0 bits differ.
#include "vulkan/operators.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/test_data.h"
#include "cpu/linear.h"
#include "cpu/packed_weights.h"
#include "numerics/hadamard.h"
#include "vulkan/testing/operator_rig.h"
#include "vulkan/testing/test_device.h"

namespace dllm::vulkan {
namespace {

using cpu::test::Random;
using cpu::test::random_floats;
using test::difference;
using test::OperatorRig;

class OperatorBits : public test::OnOperators {
 protected:
  static Operators& device() { return OperatorRig::operators(); }
  static const cpu::KernelSet& scalar() { return *cpu::find_kernel_set("scalar"); }
};

TEST_F(OperatorBits, RmsNorm) {
  for (const std::int64_t slice : {1, 15, 16, 33, 128, 1000, 2200})
    for (const std::int32_t groups : {1, 3})
      for (const bool has_gain : {true, false}) {
        const std::int64_t rows = 5, width = slice * groups;
        const auto x = random_floats(random_, rows * width, 3.f);
        const auto gain = has_gain ? random_floats(random_, slice) : std::vector<float>(slice, 1.f);
        std::vector<float> expected(x.size());
        for (std::int64_t i = 0; i < rows * width; i += slice)
          scalar().rms_norm(x.data() + i, gain.data(), 1e-5f, slice, expected.data() + i);
        const auto from = rig_.put(x), out = rig_.room(rows * width);
        const op::RmsNorm norm{0, 0, 1e-5f, groups, 1};
        rig_.run(device().rms_norm(norm, width, from, has_gain ? rig_.put(gain) : 0, out), rows);
        EXPECT_EQ(difference(rig_.get(out, rows * width), expected), "") << slice << ' ' << groups;
        // In place, as plans have it.
        rig_.run(device().rms_norm(norm, width, from, has_gain ? rig_.put(gain) : 0, from), rows);
        EXPECT_EQ(difference(rig_.get(from, rows * width), expected), "") << slice << ' ' << groups;
      }
}

TEST_F(OperatorBits, AddAndCopy) {
  const std::int64_t rows = 7, width = 100;
  const auto a = random_floats(random_, rows * width), b = random_floats(random_, rows * width, 1e4f);
  std::vector<float> sum(a.size());
  scalar().add(a.data(), b.data(), rows * width, sum.data());
  const auto left = rig_.put(a), out = rig_.room(rows * width);
  rig_.run(device().add(width, left, rig_.put(b), out), rows);
  EXPECT_EQ(difference(rig_.get(out, rows * width), sum), "");

  const std::vector<std::int32_t> order = {6, 0, 3};
  std::vector<float> expected;
  for (const std::int32_t row : order)
    expected.insert(expected.end(), a.begin() + row * width, a.begin() + (row + 1) * width);
  expected.resize(4 * width, OperatorRig::kUntouched);
  const auto some = rig_.room(4 * width);
  rig_.run(device().copy_rows(left, rig_.put(order), some, width), 3);
  EXPECT_EQ(difference(rig_.get(some, 4 * width), expected), "");
  rig_.run(device().copy_rows(left, 0, out, width), rows);
  EXPECT_EQ(difference(rig_.get(out, rows * width), a), "");
}

TEST_F(OperatorBits, GatedUnits) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  auto gate = random_floats(random_, 6000, 12.f);
  for (std::size_t i = 0; i < 2000; ++i) gate[i] *= 10.f;
  const float special[] = {0.f, -0.f, kInf, -kInf, std::nanf(""), 88.7f, -88.7f, -103.9f, -104.1f, 1e-30f, 1e30f};
  std::copy(std::begin(special), std::end(special), gate.begin());
  const auto up = random_floats(random_, 6000), ones = std::vector<float>(6000, 1.f);
  for (const auto activation : {Activation::kSilu, Activation::kGeluTanh})
    for (const bool has_up : {true, false}) {
      std::vector<float> expected(gate.size());
      const auto kernel = activation == Activation::kSilu ? scalar().swiglu : scalar().geglu;
      kernel(gate.data(), has_up ? up.data() : ones.data(), 6000, expected.data());
      const auto out = rig_.room(6000);
      rig_.run(
          device().glu({0, has_up ? 1 : kNoId, 2, activation}, 200, rig_.put(gate), has_up ? rig_.put(up) : 0, out),
          30);
      EXPECT_EQ(difference(rig_.get(out, 6000), expected), "") << has_up;
    }
}

TEST_F(OperatorBits, RegionsOfRows) {
  const std::int64_t rows = 4, width = 70;
  const auto a = random_floats(random_, rows * width), b = random_floats(random_, rows * width);
  std::vector<RowArgument> regions(rows);
  regions[1].kind = regions[2].kind = kOfCanvas;
  std::vector<float> scaled, selected;
  for (std::int64_t i = 0; i < rows * width; ++i) {
    const bool canvas = i / width == 1 || i / width == 2;
    scaled.push_back(a[static_cast<std::size_t>(i)] * (canvas ? 0.3f : -1.7f));
    selected.push_back((canvas ? a : b)[static_cast<std::size_t>(i)]);
  }
  const auto from = rig_.put(a), table = rig_.put(regions), out = rig_.room(rows * width);
  rig_.run(device().scale(width, {-1.7f, 0.3f}, from, table, out), rows);
  EXPECT_EQ(difference(rig_.get(out, rows * width), scaled), "");
  rig_.run(device().select(width, from, rig_.put(b), table, from), rows);
  EXPECT_EQ(difference(rig_.get(from, rows * width), selected), "");
}

TEST_F(OperatorBits, HadamardTransforms) {
  for (const std::int32_t order : {2, 8, 64, 256, 12, 96, 1536}) {
    const auto transform = Hadamard::online(order);
    ASSERT_TRUE(transform);
    const std::int64_t rows = 3, width = 2 * order;
    const auto x = random_floats(random_, rows * width);
    std::vector<float> expected(x.size());
    scalar().hadamard({order, transform->core(), transform->core_signs().data(), transform->scale()}, x.data(),
                      rows * width, expected.data());
    const auto from = rig_.put(x), out = rig_.room(rows * width);
    const std::vector<float> signs(transform->core_signs().begin(), transform->core_signs().end());
    const DeviceHadamard there{order, transform->core(), transform->scale(), signs.empty() ? 0 : rig_.put(signs)};
    rig_.run(device().hadamard(there, width, from, out), rows);
    EXPECT_EQ(difference(rig_.get(out, rows * width), expected), "") << order;
    rig_.run(device().hadamard(there, width, from, from), rows);
    EXPECT_EQ(difference(rig_.get(from, rows * width), expected), "") << order;
  }
}

TEST_F(OperatorBits, Rope) {
  const std::int64_t rows = 6;
  for (const std::int32_t heads : {1, 3})
    for (const std::int32_t dims : {64, 24})
      for (const RopeLayout layout : {RopeLayout::kHalfSplit, RopeLayout::kInterleaved}) {
        const op::Rope rope{0, heads, 64, dims, layout, 1e4f, 1.f, kNoId, 1};
        const std::int64_t width = 64 * heads;
        const auto x = random_floats(random_, rows * width), cos = random_floats(random_, rows * dims / 2),
                   sin = random_floats(random_, rows * dims / 2);
        std::vector<float> expected(x.size());
        for (std::int64_t r = 0; r < rows; ++r)
          scalar().rope({heads, 64, dims, layout == RopeLayout::kInterleaved, cos.data() + r * dims / 2,
                         sin.data() + r * dims / 2},
                        x.data() + r * width, expected.data() + r * width);
        const auto from = rig_.put(x), out = rig_.room(rows * width);
        rig_.run(device().rope(rope, from, rig_.put(cos), rig_.put(sin), out), rows);
        EXPECT_EQ(difference(rig_.get(out, rows * width), expected), "") << heads << ' ' << dims;
        rig_.run(device().rope(rope, from, rig_.put(cos), rig_.put(sin), from), rows);
        EXPECT_EQ(difference(rig_.get(from, rows * width), expected), "") << heads << ' ' << dims;
      }
}

/// Blocks of every size, and some that hold what is no number.
std::vector<float> rows_of_blocks(Random& random, std::int64_t rows, std::int64_t k) {
  auto x = random_floats(random, rows * k, 4.f);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(x[i], static_cast<int>(i / 32 % 40) - 20);
  return x;
}

TEST_F(OperatorBits, QuantizedRows) {
  const std::int64_t rows = 9, k = 160;
  auto x = rows_of_blocks(random_, rows, k);
  std::fill_n(x.begin() + 32, 32, 0.f);
  std::fill_n(x.begin() + 64, 32, 1e-37f);
  x[100] = std::numeric_limits<float>::infinity();
  x[130] = std::nanf("");
  for (const bool exact : {true, false}) {
    std::vector<std::int8_t> values(x.size());
    std::vector<float> scales(x.size() / 32);
    std::vector<std::int32_t> sums(x.size() / 16);
    for (std::int64_t r = 0; r < rows; ++r)
      scalar().quantize_row(x.data() + r * k, k, exact, values.data() + r * k, scales.data() + r * k / 32,
                            sums.data() + r * k / 16);
    const DeviceCodes codes{rig_.room(rows * k / 4), rig_.room(rows * k / 32), rig_.room(rows * k / 16)};
    rig_.run(device().quantize(k, exact, rig_.put(x), codes), rows);
    EXPECT_EQ(difference(rig_.get<std::int8_t>(codes.values, rows * k), values), "") << exact;
    EXPECT_EQ(difference(rig_.get(codes.scales, rows * k / 32), scales), "") << exact;
    EXPECT_EQ(difference(rig_.get<std::int32_t>(codes.sums, rows * k / 16), sums), "") << exact;
  }
}

/// Random weights of any type.
std::vector<std::byte> random_weights(Random& random, TensorType type, std::int64_t count) {
  for (const auto& layout : cpu::test::kBlockLayouts)
    if (layout.type == type) return cpu::test::random_blocks(random, layout, count);
  if (type != TensorType::kF32) return cpu::test::random_words(random, type, count);
  const auto values = random_floats(random, count);
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

class Products : public OperatorBits, public testing::WithParamInterface<TensorType> {
 protected:
  /// A product on the device, and by the scalar kernels.
  void compare(std::int64_t rows, std::int64_t k, std::int64_t n, bool biased) {
    const auto weights = random_weights(random_, GetParam(), k * n);
    auto x = rows_of_blocks(random_, rows, k);
    const auto bias = random_floats(random_, n);
    // A row whose sums meet subnormal numbers.
    for (std::int64_t i = 0; i < k; ++i) x[static_cast<std::size_t>(i)] *= rows == 4 ? 0x1p-100f : 1.f;
    ThreadPool pool(1);
    const WeightView view{GetParam(), {k, n}, weights};
    const cpu::PackedMatrix packed(view, pool);
    const cpu::PackedWeight& weight = packed.weight();
    cpu::LinearRunner runner(scalar(), pool);
    std::vector<float> expected(static_cast<std::size_t>(rows * n));
    runner.run(runner.prepare(view, &weight, biased ? bias.data() : nullptr, x.data(), rows, 0), n, expected.data());

    const std::span<const std::uint8_t> panels(weight.panels,
                                               static_cast<std::size_t>(weight.panel_count() * weight.panel_bytes()));
    const DeviceMatrix matrix{rig_.put(panels), weight.format, weight.layout, k, n};
    const std::vector<std::int32_t> count = {static_cast<std::int32_t>(rows)};
    const auto from = rig_.put(x);
    DeviceCodes codes;
    if (!cpu::packs_floats(*weight.format)) {
      codes = {rig_.room(rows * k / 4), rig_.room(rows * k / 32), rig_.room(rows * k / 16)};
      rig_.run(device().quantize(k, cpu::LinearRunner::exact_activations(weight), from, codes), rows);
    }
    expected.push_back(OperatorRig::kUntouched);
    for (const auto& plan : plans(*weight.format)) {
      const auto out = rig_.room(rows * n + 1);
      device().force(plan);
      rig_.run(device().linear(matrix, from, codes, biased ? rig_.put(bias) : 0, {rig_.put(count), rows}, out), rows);
      EXPECT_EQ(difference(rig_.get(out, rows * n + 1), expected), "")
          << rows << " x " << k << " x " << n << ' ' << (plan ? plan->name() : "chosen");
    }
    device().force({});
  }

  /// The choice of plan_product(), and every shader that runs here. Drivers for processors compile the others slowly:
  /// they are for a type of each kind.
  static std::vector<std::optional<ProductPlan>> plans(const cpu::PackedFormat& format) {
    std::vector<std::optional<ProductPlan>> all{std::nullopt};
    const auto units = device().product_units();
    EXPECT_TRUE(units);
    if (!units) return all;
    const bool processor = (*units)->facts.type == VK_PHYSICAL_DEVICE_TYPE_CPU;
    constexpr TensorType kKinds[] = {TensorType::kQ4_0,  TensorType::kQ8_0,  TensorType::kQ4_K,
                                     TensorType::kQ2_K,  TensorType::kQ6_K,  TensorType::kIQ4_XS,
                                     TensorType::kMXFP4, TensorType::kIQ1_S, TensorType::kIQ2_XS};
    if (cpu::packs_floats(format) || (processor && std::ranges::count(kKinds, format.type) == 0)) return all;
    const std::uint32_t layout = (*units)->layout.value_or(0);
    for (const ProductPlan& plan :
         {ProductPlan{}, ProductPlan{ProductShader::kDots, 8}, ProductPlan{ProductShader::kMatrices, 8, 2, 16, layout},
          ProductPlan{ProductShader::kMatrices, 8, 4, 8, layout},
          ProductPlan{ProductShader::kMatrices, 32, 2, 8, layout},
          ProductPlan{ProductShader::kMatrices, 32, 2, 16, layout}})
      if (runs(plan, format, **units)) all.emplace_back(plan);
    for (std::uint32_t kernel = 0; kernel < kPairsKernel; ++kernel) {
      const ProductPlan plan{ProductShader::kKernel, kProductKernels[kernel].rows, 0, 0, 0, kernel};
      if (runs(plan, format, **units)) all.emplace_back(plan);
    }
    return all;
  }
};

TEST_P(Products, HaveTheBitsOfTheScalarKernels) {
  const std::int64_t elements = cpu::packed_format(GetParam())->block_elems, block = elements > 32 ? elements : 96;
  compare(1, block, 16, false);
  compare(9, 2 * block, 33, true);
  // Rows of 1024 and more are quantized with rounded scales.
  compare(4, 1024 + (block == 256 ? 256 : 64), 20, false);
}

std::string name_of_type(const testing::TestParamInfo<TensorType>& param) {
  return std::string(codec(param.param).name);
}

INSTANTIATE_TEST_SUITE_P(EveryType, Products,
                         testing::Values(TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0,
                                         TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0, TensorType::kQ5_1,
                                         TensorType::kQ4_K, TensorType::kQ5_K, TensorType::kQ6_K, TensorType::kMXFP4,
                                         TensorType::kQ2_K, TensorType::kQ3_K, TensorType::kIQ4_NL, TensorType::kIQ4_XS,
                                         TensorType::kNVFP4, TensorType::kIQ1_S, TensorType::kIQ1_M,
                                         TensorType::kIQ2_XXS, TensorType::kIQ2_XS, TensorType::kIQ2_S,
                                         TensorType::kIQ3_XXS, TensorType::kIQ3_S),
                         name_of_type);

TEST_F(OperatorBits, OddRowsOfBf16) {
  const auto weights = random_weights(random_, TensorType::kBF16, 77 * 5);
  const auto x = random_floats(random_, 3 * 77);
  ThreadPool pool(1);
  const WeightView view{TensorType::kBF16, {77, 5}, weights};
  const cpu::PackedMatrix packed(view, pool);
  cpu::LinearRunner runner(scalar(), pool);
  std::vector<float> expected(15);
  runner.run(runner.prepare(view, &packed.weight(), nullptr, x.data(), 3, 0), 5, expected.data());
  const std::span<const std::uint8_t> panels(packed.weight().panels,
                                             static_cast<std::size_t>(packed.weight().panel_bytes()));
  const std::vector<std::int32_t> count = {3};
  const auto out = rig_.room(15);
  rig_.run(device().linear({rig_.put(panels), packed.weight().format, packed.weight().layout, 77, 5}, rig_.put(x), {},
                           0, {rig_.put(count), 3}, out),
           3);
  EXPECT_EQ(difference(rig_.get(out, 15), expected), "");
}

/// Scores of experts are added in float64, or in the same way by integers.
TEST_F(OperatorBits, RoutesWithoutFloat64) {
  Arithmetic none = device().arithmetic();
  none.fused64 = Fused64::kNone;
  Operators without(test_device(), none);
  const std::int64_t rows = 9, experts = 70;
  auto numbers = random_floats(random_, rows * experts, 8.f);
  for (std::int64_t e = 0; e < experts; ++e) {
    numbers[static_cast<std::size_t>(experts + e)] *= 13.f;                     // one expert has nearly all of the sum
    numbers[static_cast<std::size_t>(2 * experts + e)] = e < 3 ? 1.f : -110.f;  // most scores are zero or nearly so
    numbers[static_cast<std::size_t>(3 * experts + e)] = 0x1p-60f;
  }
  numbers[4 * experts + 5] = std::nanf("");
  const auto logits = rig_.put(numbers), bias = rig_.put(random_floats(random_, experts));
  const auto count = rig_.put(std::vector<std::int32_t>{static_cast<std::int32_t>(rows)});
  const auto plan = rig_.put(std::vector<RowArgument>(rows));
  for (const GateScore score : {GateScore::kSoftmax, GateScore::kSigmoid})
    for (const bool normalize : {false, true}) {
      op::Route route{};
      route.used = 4, route.score = score, route.normalize = normalize, route.scale = 2.5f;
      std::vector<std::vector<float>> seen;
      for (Operators* const one : {&device(), &without}) {
        const RouteScratch scratch{rig_.room(rows * experts), rig_.room(rows * experts)};
        const auto out = rig_.room(rows * 8);
        rig_.run(one->route_scores(route, experts, logits, normalize ? bias : 0, scratch), rows);
        rig_.run(one->route_choice(route, experts, scratch, 0, plan, count, out), rows);
        seen.push_back(rig_.get(scratch.scores, rows * experts));
        const auto chosen = rig_.get(out, rows * 8);
        seen.back().insert(seen.back().end(), chosen.begin(), chosen.end());
      }
      EXPECT_EQ(difference(seen[1], seen[0]), "") << normalize;
    }
}

TEST(NotRun, FormatsWithoutAShader) {
  for (const cpu::PackedFormat& format : cpu::kPackedFormats)
    EXPECT_TRUE(multiplies(format)) << codec(format.type).name;
  cpu::PackedFormat unknown = *cpu::packed_format(TensorType::kQ4_0);
  unknown.scales = cpu::Scales::kNone;
  EXPECT_FALSE(multiplies(unknown));
  cpu::PackedFormat unlisted = *cpu::packed_format(TensorType::kIQ3_S);
  unlisted.values = cpu::Values::kNone;
  EXPECT_FALSE(multiplies(unlisted));
}

TEST(NotRun, NamesWhatIsMissing) {
  Graph graph;
  graph.values = {{"logits", 1, 64}, {"many", 1, 2000}};
  EXPECT_EQ(not_run(op::Add{}, graph), "");
  op::Attention attention{};
  attention.head_dim = 2048;
  EXPECT_EQ(not_run(attention, graph), "a head_dim of 2048; 1024 is the most");
  op::Route route{};
  EXPECT_EQ(not_run(route, graph), "");
  route.logits = 1;
  EXPECT_EQ(not_run(route, graph), "2000 experts; 1024 is the most");
}

}  // namespace
}  // namespace dllm::vulkan
