#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/test_data.h"
#include "numerics/hadamard.h"
#include "numerics/tensor_type.h"

// The kernels against plain double-precision code. kernels/selftest.cpp checks that the sets agree bit for
// bit.

namespace dllm::cpu {
namespace {

using test::Random;

class Kernels : public ::testing::TestWithParam<const KernelSet*> {
 protected:
  const KernelSet& set() const { return *GetParam(); }
  Random random_{7};
};

INSTANTIATE_TEST_SUITE_P(Isa, Kernels, ::testing::ValuesIn(test::available_sets()),
                         [](const auto& test) { return std::string(test.param->name); });

using test::TestMatrix;
using test::TestRows;

TestRows quantize(const KernelSet& set, const std::vector<float>& x, std::int64_t rows = 1, bool exact = false) {
  return {set, x, rows, exact};
}

std::vector<float> run_linear(const KernelSet& set, LinearArgs args, std::int64_t n) {
  std::vector<float> out(static_cast<std::size_t>(args.rows * n), 9.f);
  std::vector<std::byte> storage(kLinearScratchBytes + 64);
  void* scratch = storage.data();
  std::size_t space = storage.size();
  std::align(64, kLinearScratchBytes, scratch, space);
  args.out = out.data();
  args.out_stride = n;
  // In two calls, as two tasks would.
  const std::int64_t middle = n / 2 / kPanel * kPanel;
  set.linear(args, 0, middle, scratch);
  set.linear(args, middle, n, scratch);
  return out;
}

LinearArgs linear_args(TensorType type, const std::vector<std::byte>& weight, std::int64_t k, std::int64_t rows) {
  const Codec& format = codec(type);
  LinearArgs args;
  args.plain = {.type = type,
                .weight = weight.data(),
                .row_bytes = format.row_bytes(k),
                .dequantize = format.dequantize,
                .block_elems = format.block_elems,
                .block_bytes = format.block_bytes};
  args.k = k;
  args.rows = rows;
  return args;
}

std::vector<float> decode(TensorType type, const std::vector<std::byte>& weight, std::int64_t count) {
  std::vector<float> w(static_cast<std::size_t>(count));
  codec(type).dequantize(weight.data(), w.data(), count);
  return w;
}

/// Sum and sum of magnitudes of x[k] w[k]: the reference for rounding errors.
struct Dot {
  double sum = 0;
  double magnitude = 0;
};
Dot dot(const float* x, const float* w, std::int64_t k) {
  Dot d;
  for (std::int64_t i = 0; i < k; ++i) {
    const double product = static_cast<double>(x[i]) * static_cast<double>(w[i]);
    d.sum += product;
    d.magnitude += std::abs(product);
  }
  return d;
}

TEST_P(Kernels, FloatLinearOfEveryFormat) {
  for (const Codec* format : all_codecs()) {
    const std::int64_t k = format->block_elems == 1 ? 83 : 3 * 256, n = 37, rows = 14;
    std::vector<std::byte> weight;
    if (format->type == TensorType::kF32) {
      const std::vector<float> w = random_floats(random_, n * k);
      weight.resize(w.size() * 4);
      std::memcpy(weight.data(), w.data(), weight.size());
    } else if (!format->is_block()) {
      weight = random_words(random_, format->type, n * k);
    } else {
      for (const test::BlockLayout& layout : test::kBlockLayouts)
        if (layout.type == format->type) weight = random_blocks(random_, layout, n * k);
    }
    ASSERT_FALSE(weight.empty()) << format->name;
    const std::vector<float> w = decode(format->type, weight, n * k), x = random_floats(random_, rows * k);
    const std::vector<float> bias = random_floats(random_, n);
    LinearArgs args = linear_args(format->type, weight, k, rows);
    args.plain.x = x.data();
    args.bias = bias.data();
    const std::vector<float> out = run_linear(set(), args, n);
    for (std::int64_t m = 0; m < rows; ++m)
      for (std::int64_t j = 0; j < n; ++j) {
        const Dot expected = dot(x.data() + m * k, w.data() + j * k, k);
        ASSERT_NEAR(out[static_cast<std::size_t>(m * n + j)],
                    expected.sum + static_cast<double>(bias[static_cast<std::size_t>(j)]),
                    1e-5 * expected.magnitude + 1e-6)
            << format->name << " row " << m << " output " << j;
      }
  }
}

TEST_P(Kernels, Int8LinearOfEveryQuantizedFormat) {
  for (const test::BlockLayout& layout : test::kBlockLayouts) {
    ASSERT_TRUE(set().runs_int8(layout.type));
    const std::int64_t k = 5 * 256, n = 37, rows = 11;
    const std::vector<std::byte> weight = random_blocks(random_, layout, n * k);
    const std::vector<float> w = decode(layout.type, weight, n * k), x = random_floats(random_, rows * k, 4.f);
    TestRows q = quantize(set(), x, rows, packed_format(layout.type)->exact_rows);
    std::vector<float> rounded(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) rounded[i] = static_cast<float>(q.values[i]) * q.scales[i / 32];
    TestMatrix matrix(layout.type, weight, n, k);
    LinearArgs args;
    matrix.add_to(args);
    args.k = k, args.rows = rows, args.quantized = q.view(matrix.format());
    const std::vector<float> out = run_linear(set(), args, n);
    for (std::int64_t m = 0; m < rows; ++m)
      for (std::int64_t j = 0; j < n; ++j) {
        const float actual = out[static_cast<std::size_t>(m * n + j)];
        // Relative to the quantized activations only float rounding remains (formats with a minimum cancel a little).
        const Dot same = dot(rounded.data() + m * k, w.data() + j * k, k);
        ASSERT_NEAR(actual, same.sum, 3e-5 * same.magnitude) << codec(layout.type).name;
        // Relative to the true ones, half a step per value.
        double bound = 3e-5 * same.magnitude;
        for (std::int64_t i = 0; i < k; ++i)
          bound += 0.5001 * static_cast<double>(q.scales[static_cast<std::size_t>((m * k + i) / 32)]) *
                   std::abs(static_cast<double>(w[static_cast<std::size_t>(j * k + i)]));
        ASSERT_NEAR(actual, dot(x.data() + m * k, w.data() + j * k, k).sum, bound) << codec(layout.type).name;
      }
  }
}

TEST_P(Kernels, ExtremeCodesDoNotOverflow) {
  // Largest codes times largest activations of one sign: 16-bit intermediate sums would saturate.
  const std::int64_t k = 256;
  for (const test::BlockLayout& layout : test::kBlockLayouts)
    for (int fill : {0x00, 0x7f, 0x80, 0xff}) {
      std::vector<std::byte> weight = random_blocks(random_, layout, 16 * k);
      for (std::size_t i = 0; i < weight.size(); ++i) {
        const auto in_block = static_cast<int>(i % static_cast<std::size_t>(layout.bytes));
        const bool scale = (layout.half0 >= 0 && (in_block == layout.half0 || in_block == layout.half0 + 1)) ||
                           (layout.half1 >= 0 && (in_block == layout.half1 || in_block == layout.half1 + 1)) ||
                           (layout.type == TensorType::kMXFP4 && in_block == 0) ||
                           (layout.type == TensorType::kNVFP4 && in_block < 4) ||
                           (layout.type == TensorType::kIQ1_M && in_block >= 48);
        if (!scale) weight[i] = static_cast<std::byte>(fill);
        // The last group of the list, eight times the largest value, without a minus.
        if (layout.type == TensorType::kIQ2_XS && fill == 0x7f && in_block >= 2 && in_block < 66)
          weight[i] = in_block % 2 == 0 ? std::byte{0xff} : std::byte{0x01};
      }
      const std::vector<float> w = decode(layout.type, weight, 16 * k);
      TestMatrix matrix(layout.type, weight, 16, k);
      for (float sign : {1.f, -1.f}) {
        const std::vector<float> x(static_cast<std::size_t>(k), sign * 127.f / 64.f);  // scale 2^-6: exact codes
        TestRows q = quantize(set(), x, 1, matrix.format().exact_rows);
        LinearArgs args;
        matrix.add_to(args);
        args.k = k, args.rows = 1, args.quantized = q.view(matrix.format());
        const std::vector<float> out = run_linear(set(), args, 16);
        for (std::int64_t j = 0; j < 16; ++j) {
          const Dot expected = dot(x.data(), w.data() + j * k, k);
          ASSERT_NEAR(out[static_cast<std::size_t>(j)], expected.sum, 1e-4 * expected.magnitude + 1e-6)
              << codec(layout.type).name << " " << fill;
        }
      }
    }
}

TEST_P(Kernels, QuantizationRoundsToNearestEvenAndKeepsNonFiniteVisible) {
  std::vector<float> x(64, 0.f);
  x[0] = 127.f, x[1] = 0.5f, x[2] = 1.5f, x[3] = -2.5f, x[4] = 3.49f;
  TestRows q = quantize(set(), x);
  EXPECT_EQ(q.scales[0], 1.f);
  EXPECT_EQ(q.values[0], 127);
  EXPECT_EQ(q.values[1], 0);
  EXPECT_EQ(q.values[2], 2);
  EXPECT_EQ(q.values[3], -2);
  EXPECT_EQ(q.values[4], 3);
  EXPECT_EQ(q.sums[0], 130);
  EXPECT_EQ(q.scales[1], 0.f);  // a block of zeros
  // Scales are rounded up to two bits of mantissa, so codes never exceed 127.
  for (float amax : {127.001f, 158.f, 158.75f, 159.f, 200.f, 253.f, 254.f}) {
    x[0] = amax;
    q = quantize(set(), x);
    const float ideal = amax / 127.f, steps = q.scales[0] * 4.f / std::exp2(std::floor(std::log2(ideal)));
    EXPECT_EQ(steps, std::round(steps)) << amax;
    EXPECT_GE(q.scales[0], ideal) << amax;
    EXPECT_LE(q.scales[0], 1.25f * ideal) << amax;
    EXPECT_EQ(q.values[0], static_cast<int>(std::nearbyint(amax / q.scales[0]))) << amax;
    q = quantize(set(), x, 1, true);
    EXPECT_EQ(q.scales[0], ideal);
    EXPECT_EQ(q.values[0], 127);
  }
  x[40] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(quantize(set(), x).scales[1]));
  x[40] = -std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(quantize(set(), x).scales[1]));
  x[40] = 1e-44f;  // 1 / scale would overflow
  q = quantize(set(), x);
  EXPECT_EQ(q.scales[1], 0.f);
  EXPECT_EQ(q.values[40], 0);
}

TEST_P(Kernels, ExpIsAccurateOverTheWholeRange) {
  std::vector<float> x;
  for (float v = -87.3f; v < 88.7f; v += 0.00137f) x.push_back(v);
  std::vector<float> e(x.size());
  set().exp(x.data(), static_cast<std::int64_t>(x.size()), e.data());
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    worst = std::max(worst, std::abs(static_cast<double>(e[i]) - exact) / exact);
  }
  EXPECT_LT(worst, 2e-7);
  const float inf = std::numeric_limits<float>::infinity();
  const float special[] = {-inf, inf, 89.f, 200.f, -104.f, 0.f, std::numeric_limits<float>::quiet_NaN(), -95.f};
  float out[8];
  set().exp(special, 8, out);
  EXPECT_EQ(out[0], 0.f);
  EXPECT_EQ(out[1], inf);
  EXPECT_EQ(out[2], inf);
  EXPECT_EQ(out[3], inf);
  EXPECT_EQ(out[4], 0.f);
  EXPECT_EQ(out[5], 1.f);
  EXPECT_TRUE(std::isnan(out[6]));
  EXPECT_NEAR(static_cast<double>(out[7]), std::exp(-95.0), 1e-45);  // subnormal
}

TEST_P(Kernels, RowKernelsMatchDoublePrecision) {
  for (std::int64_t n : {8, 17, 128, 4096}) {
    const std::vector<float> a = random_floats(random_, n, 5.f), b = random_floats(random_, n, 2.f);
    std::vector<float> out(a.size());
    set().rms_norm(a.data(), b.data(), 1e-6f, n, out.data());
    double squares = 0;
    for (float v : a) squares += static_cast<double>(v) * static_cast<double>(v);
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_NEAR(out[i], static_cast<double>(a[i]) * inverse * static_cast<double>(b[i]), 2e-6);
    set().swiglu(a.data(), b.data(), n, out.data());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double g = static_cast<double>(a[i]);
      ASSERT_NEAR(out[i], g / (1 + std::exp(-g)) * static_cast<double>(b[i]), 3e-6);
    }
    set().geglu(a.data(), b.data(), n, out.data());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double g = static_cast<double>(a[i]);
      const double gelu = g / 2 * (1 + std::tanh(std::sqrt(2 / 3.14159265358979324) * (g + 0.044715 * g * g * g)));
      ASSERT_NEAR(out[i], gelu * static_cast<double>(b[i]), 3e-6);
    }
    set().softcap(a.data(), 1.5f, n, out.data());
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_NEAR(out[i], 1.5 * std::tanh(static_cast<double>(a[i]) / 1.5), 5e-7);
    set().add(a.data(), b.data(), n, out.data());
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], a[i] + b[i]);
    set().add_scaled(a.data(), b[0], n, out.data());
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], std::fma(a[i], b[0], a[i] + b[i]));
  }
}

TEST_P(Kernels, RopeRotatesPairsOfBothLayouts) {
  const float cosine[] = {0.6f, 0.8f}, sine[] = {0.8f, -0.6f};
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, -6};
  std::vector<float> out(12);
  set().rope({2, 6, 4, false, cosine, sine}, x.data(), out.data());
  const auto rotated = [](float a, float b, float c, float s) { return a * c - b * s; };
  EXPECT_EQ(out[0], rotated(1, 3, 0.6f, 0.8f));
  EXPECT_EQ(out[2], rotated(3, -1, 0.6f, 0.8f));
  EXPECT_EQ(out[1], rotated(2, 4, 0.8f, -0.6f));
  EXPECT_EQ(out[4], 5);  // beyond dims: copied
  EXPECT_EQ(out[11], -6);
  set().rope({2, 6, 4, true, cosine, sine}, x.data(), out.data());
  EXPECT_EQ(out[0], rotated(1, 2, 0.6f, 0.8f));
  EXPECT_EQ(out[3], rotated(4, -3, 0.8f, -0.6f));
  std::vector<float> in_place = x;
  set().rope({2, 6, 4, true, cosine, sine}, in_place.data(), in_place.data());
  EXPECT_EQ(in_place, out);
}

TEST_P(Kernels, HadamardHasTheBitsOfItsDefinition) {
  for (const std::int64_t order : {2, 4, 8, 16, 32, 128, 1024, 12, 24, 96, 1536, 20, 40, 28, 3584, 36, 44, 60}) {
    const Hadamard matrix = *Hadamard::online(order);
    const HadamardArgs args{order, matrix.core(), matrix.core_signs().data(), matrix.scale()};
    const std::int64_t n = 3 * order;
    std::vector<float> x = random_floats(random_, n, 5.f), expected = x, out(x.size());
    for (std::int64_t i = 0; i < n; i += order)
      matrix.apply(std::span(expected).subspan(static_cast<std::size_t>(i), static_cast<std::size_t>(order)));
    set().hadamard(args, x.data(), n, out.data());
    ASSERT_EQ(out, expected) << order;
    set().hadamard(args, x.data(), n, x.data());
    ASSERT_EQ(x, expected) << order << " in place";
  }
}

TEST(KernelSets, AreListedAndFoundByName) {
  KernelSetEntry entries[kMaxKernelSets];
  const int count = list_kernel_sets(entries);
  ASSERT_GE(count, 1);
  EXPECT_STREQ(entries[0].set->name, "scalar");
  EXPECT_TRUE(entries[0].available);
  for (int i = 0; i < count; ++i)
    EXPECT_EQ(find_kernel_set(entries[i].set->name), entries[i].available ? entries[i].set : nullptr);
  EXPECT_EQ(find_kernel_set("sse9"), nullptr);
  EXPECT_NE(default_kernel_set(), nullptr);
}

}  // namespace
}  // namespace dllm::cpu
