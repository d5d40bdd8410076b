// Compares panels of windows with the definition, one output at a time (reference/window_sum.h).

#include "npu_backend/accuracy/window_kernel.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "npu_backend/accuracy/vector_unit.h"
#include "npu_compiler/testing/reference/window_sum.h"
#include "numerics/half.h"

namespace dllm::npu::accuracy {
namespace {

struct Pair {
  const char *a, *w;
  WindowRule::Kind kind;
};

constexpr int kBits = 15;

/// Blocks with very different magnitudes, so that windows lose bits; blocks of zeros; denormals; some NaN.
std::vector<float> blocks(std::mt19937& random, std::size_t count, std::size_t block, int spread, bool nan) {
  std::normal_distribution<float> normal;
  std::vector<float> values;
  while (values.size() < count) {
    const float size =
        random() % 5 == 0 ? 0.0f : std::ldexp(1.0f, static_cast<int>(random() % (2 * spread + 1)) - spread);
    for (std::size_t i = 0; i < block; ++i) values.push_back(size * normal(random));
  }
  if (nan) values[random() % count] = std::numeric_limits<float>::quiet_NaN();
  return values;
}

constexpr std::int64_t kRows = 15, kTerms = 96;
using Lanes = std::vector<std::vector<float>>;

/// Rows times one panel in two formats, in two instructions, laid out for the kernels.
class PanelProduct {
 public:
  PanelProduct(const OperandFormat& fa, const OperandFormat& fw, const Lanes& a, const Lanes& w)
      : rule_(WindowRule::of(fa, fw, kBits)), group_(rule_.integers() ? std::min(fa.block(), fw.block()) : 1) {
    Operand operand;
    for (const auto& row : a) {
      quantize(fa, rule_.integers(), row, operand);
      terms_.insert(terms_.end(), operand.lanes.begin(), operand.lanes.end());
      for (std::size_t g = 0; g < groups(); ++g) ea_.push_back(exponent(operand, fa, g));
    }
    wide_.resize(kTerms * kPanel), narrow_.resize(kTerms * kPanel), ew_.resize(groups() * kPanel);
    for (std::size_t n = 0; n < kPanel; ++n) {
      quantize(fw, rule_.integers(), w[n], operand);
      for (std::size_t k = 0; k < kTerms; ++k) {
        wide_[k * kPanel + n] = operand.lanes[k];
        narrow_[k * kPanel + n] = static_cast<std::int16_t>(rule_.integers() ? operand.lanes[k] : 0.0f);
      }
      for (std::size_t g = 0; g < groups(); ++g) ew_[g * kPanel + n] = exponent(operand, fw, g);
    }
    lay_bytes(fa, fw);
    ends_ = {static_cast<std::int32_t>(32 / group_), static_cast<std::int32_t>(groups())};
  }

  std::size_t group() const { return static_cast<std::size_t>(group_); }
  std::vector<double> sums(void (*run)(const WindowRule&, const WindowProduct&, double*), bool bytes = true) const {
    bytes = bytes && !bytes_.empty();
    std::vector<double> result(kRows * kPanel);
    run(rule_,
        {.rows = kRows,
         .a = terms_.data(),
         .a_stride = kTerms,
         .a_exponents = ea_.data(),
         .a_exponents_stride = static_cast<std::int64_t>(groups()),
         .narrow = narrow_.data(),
         .wide = wide_.data(),
         .w_exponents = ew_.data(),
         .group = group_,
         .a_bytes = bytes ? a_bytes_.data() : nullptr,
         .bytes = bytes ? bytes_.data() : nullptr,
         .offsets = bytes ? offsets_.data() : nullptr,
         .ends = ends_.data(),
         .instructions = 2},
        result.data());
    return result;
  }

 private:
  std::size_t groups() const { return static_cast<std::size_t>(kTerms / group_); }
  std::int16_t exponent(const Operand& operand, const OperandFormat& format, std::size_t g) const {
    return rule_.integers() ? operand.exponents[g * group() / static_cast<std::size_t>(format.block())]
                            : std::int16_t{0};
  }
  void lay_bytes(const OperandFormat& fa, const OperandFormat& fw) {
    for (const OperandFormat& format : {fa, fw})
      if (!format.fixed() || mx_element(format.machine_format().element).magnitude_bits > 7) return;
    for (const float element : terms_) a_bytes_.push_back(static_cast<std::uint8_t>(static_cast<int>(element) + 128));
    bytes_.resize(narrow_.size()), offsets_.resize(ew_.size());
    for (std::size_t k = 0; k < kTerms; ++k)
      for (std::size_t n = 0; n < kPanel; ++n) {
        const std::int16_t element = narrow_[k * kPanel + n];
        bytes_[(k / 4 * kPanel + n) * 4 + k % 4] = static_cast<std::int8_t>(element);
        offsets_[k / group() * kPanel + n] -= 128 * element;
      }
  }

  WindowRule rule_;
  std::int64_t group_;
  std::vector<float> terms_, wide_;
  std::vector<std::int16_t> ea_, ew_, narrow_;
  std::vector<std::uint8_t> a_bytes_;  ///< of formats whose elements are bytes
  std::vector<std::int8_t> bytes_;
  std::vector<std::int32_t> offsets_;
  std::vector<std::int32_t> ends_;
};

class WindowProducts : public testing::TestWithParam<Pair> {};

TEST_P(WindowProducts, EqualTheDefinition) {
  const OperandFormat fa = *OperandFormat::from_name(GetParam().a), fw = *OperandFormat::from_name(GetParam().w);
  ASSERT_EQ(WindowRule::of(fa, fw, kBits).kind, GetParam().kind);
  std::mt19937 random(11);
  for (int round = 0; round < 12; ++round) {
    const int spread = round % 4 * 7;
    Lanes a, w;
    for (std::int64_t r = 0; r < kRows; ++r) a.push_back(blocks(random, kTerms, 32, spread, round > 9 && r == 3));
    for (std::int64_t n = 0; n < kPanel; ++n) w.push_back(blocks(random, kTerms, 32, spread, round > 9 && n == 5));
    const PanelProduct product(fa, fw, a, w);
    const std::vector<double> sums = product.sums(add_windows);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto row = reference::quantize(fa.machine_format(), a[i / kPanel]),
                 column = reference::quantize(fw.machine_format(), w[i % kPanel]);
      reference::WindowSum sum(fa.machine_format(), fw.machine_format(), kBits);
      sum.add(row, 0, {.row = &column, .first = 0}, 32, product.group());
      sum.add(row, 32, {.row = &column, .first = 32}, 64, product.group());
      const float written = bf16_to_f32(sum.bf16());
      ASSERT_EQ(std::isnan(written), std::isnan(sums[i])) << "round " << round << " output " << i;
      if (std::isnan(written)) continue;
      EXPECT_EQ(round_to(VectorPrecision::kBF16, sums[i]), written) << "round " << round << " output " << i;
      EXPECT_EQ(round_to(VectorPrecision::kBF16, static_cast<float>(sums[i]) * 0.37f), bf16_to_f32(sum.scaled(0.37f)));
    }
  }
}

/// Every instruction set that this processor supports gives the same bits.
TEST_P(WindowProducts, AreTheSameOnEveryInstructionSet) {
  const OperandFormat fa = *OperandFormat::from_name(GetParam().a), fw = *OperandFormat::from_name(GetParam().w);
  std::mt19937 random(3);
  Lanes a, w;
  for (std::int64_t r = 0; r < kRows; ++r) a.push_back(blocks(random, kTerms, 32, 9, false));
  for (std::int64_t n = 0; n < kPanel; ++n) w.push_back(blocks(random, kTerms, 32, 9, false));
  const PanelProduct product(fa, fw, a, w);
  for (const WindowKernel& kernel : window_kernels())
    for (const bool bytes : {false, true})
      EXPECT_EQ(product.sums(kernel.run, bytes), product.sums(window_kernels().front().run)) << kernel.name << bytes;
}

TEST(WindowKernel, WidensEveryCode) {
  std::vector<std::uint16_t> codes(1 << 16);
  std::iota(codes.begin(), codes.end(), std::uint16_t{0});
  std::vector<float> values(codes.size());
  for (const WindowKernel& kernel : window_kernels())
    for (const bool bf16 : {false, true}) {
      kernel.widen(codes.data(), bf16, static_cast<std::int64_t>(codes.size()) / kPanel, values.data());
      for (const std::uint16_t code : codes)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(values[code]),
                  std::bit_cast<std::uint32_t>(bf16 ? bf16_to_f32(code) : f16_to_f32(code)))
            << kernel.name << " " << code;
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, WindowProducts,
                         testing::Values(Pair{"mxint8:32:ocp", "mxint4:32:plena", WindowRule::Kind::kNarrow},
                                         Pair{"mxint8:16:ocp", "mxint8:32:ocp", WindowRule::Kind::kNarrow},
                                         Pair{"mxint4:8:ocp", "mxfp4_e2m1:32:ocp", WindowRule::Kind::kNarrow},
                                         Pair{"mxfp8_e4m3:32:ocp", "mxfp8_e4m3:32:ocp", WindowRule::Kind::kWide},
                                         Pair{"mxfp6_e3m2:16:ocp", "mxfp8_e4m3:8:ocp", WindowRule::Kind::kWide},
                                         Pair{"bf16", "mxint4:32:ocp", WindowRule::Kind::kFloat},
                                         Pair{"mxfp8_e5m2:32:ocp", "bf16", WindowRule::Kind::kFloat}));

}  // namespace
}  // namespace dllm::npu::accuracy
