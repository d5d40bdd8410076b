// V_RED_DRAW: tokens, keys and logits of its winners by plain arithmetic, in every precision.

#include <bit>

#include "base/rng.h"
#include "npu_core/machine/testing/lab.h"

namespace dllm::npu {
namespace {

using test::Lab;
using test::set;

constexpr std::size_t kRowLanes = 32, kRows = 4;
constexpr std::uint32_t kPosition = 77, kStep = 3, kStream = 5 << 2;
constexpr std::uint64_t kSeed = 0x123456789abcdef0;

struct Winner {
  std::uint32_t token = 0;
  float logit = 0;
  double key = -std::numeric_limits<double>::infinity();
};

/// One rounding from double to numbers with `bits` after the point: 7 of BF16, 10 of FP16. `value` is in their normal
/// range.
double round_once(int bits, double value) {
  const int exponent = std::ilogb(value);
  return std::ldexp(std::nearbyint(std::ldexp(value, bits - exponent)), exponent - bits);
}

double key(int precision, int bits, float logit, double temperature, double noise) {
  const auto z = static_cast<double>(logit);
  if (precision == 0) return z / temperature + noise;
  if (precision == 1) {
    const float product = logit * static_cast<float>(1 / temperature);
    return static_cast<double>(product + static_cast<float>(noise));
  }
  const double product = round_once(bits, z * round_once(bits, 1 / temperature));
  return round_once(bits, product + round_once(bits, noise));
}

class Draws : public testing::Test {
 protected:
  Draws() : logits_(test::normals(kRowLanes * kRows, 11, 2.0f)) {
    for (float& z : logits_) z = test::bf16_round(static_cast<double>(z));
    lab_.set_row(0, logits_);
  }

  /// Draws from four rows with one running key.
  void run(int precision, double temperature, std::uint32_t except = 0xffffffffu, std::uint32_t end = 0xffffffffu) {
    const auto bits = std::bit_cast<std::uint64_t>(temperature);
    const auto csr = [](const char* name, std::uint64_t value) {
      return set("gp1", static_cast<std::uint32_t>(value)) + "C_SET_CSR gp1, " + name + "\n";
    };
    lab_.run(csr("draw_seed_low", kSeed & 0xffffffffu) + csr("draw_seed_high", kSeed >> 32) +
             csr("draw_stream", kStream) + csr("draw_step", kStep) + csr("draw_temperature_low", bits & 0xffffffffu) +
             csr("draw_temperature_high", bits >> 32) + csr("draw_precision", static_cast<std::uint64_t>(precision)) +
             csr("draw_except", except) + csr("draw_tokens", end) + set("gp2", 0) + set("gp3", 1000) +
             set("gp4", kPosition) + set("gp5", 9) +
             "S_LI_FP f1, -inf\nS_LI_FP f2, 0.0\n.loop gp6, 4\nV_RED_DRAW gp5, gp2, gp3, f1, f2, gp4\n" +
             "S_ADDI_INT gp2, gp2, 32\nS_ADDI_INT gp3, gp3, 32\n.endloop\nS_ST_FP f1, gp0, 3\n");
  }

  Winner expected(int precision, double temperature, std::uint32_t except = 0xffffffffu) const {
    Winner best;
    for (std::uint32_t i = 0; i < logits_.size(); ++i) {
      const std::uint32_t token = 1000 + i;
      if (token == except || std::isnan(logits_[i])) continue;
      const double noise = gumbel({kSeed, kStream >> 2}, RngPurpose::kToken, kStep, kPosition, token);
      const double k = key(precision, bits_, logits_[i], temperature, noise);
      if (k > best.key) best = {token, logits_[i], k};
    }
    return best;
  }

  void expect_winner(const Winner& winner) {
    EXPECT_EQ(lab_.state().gp[5], winner.token);
    EXPECT_EQ(lab_.state().fp_accumulator[1], winner.key);
    EXPECT_EQ(lab_.state().fp_accumulator[2], static_cast<double>(winner.logit));
    EXPECT_EQ(lab_.state().fp_mem[3], f32_to_lane(lab_.state().config.lanes, static_cast<float>(winner.key)))
        << "every other reader sees the lanes' format";
  }

  std::vector<float> logits_;
  int bits_ = 7;
  Lab lab_{Lab::small()};
};

TEST_F(Draws, AreTheCpusInEveryPrecision) {
  for (const int precision : {0, 1, 2})
    for (const double temperature : {1.0, 0.7, 0.25, 3.0}) {
      SCOPED_TRACE(testing::Message() << "precision " << precision << ", temperature " << temperature);
      run(precision, temperature);
      expect_winner(expected(precision, temperature));
    }
}

TEST_F(Draws, OfHalfPrecisionLanes) {
  MachineConfig config = Lab::small();
  config.lanes = LaneFormat::kF16;
  Lab half(config);
  std::swap(lab_, half);
  bits_ = 10;
  lab_.set_row(0, logits_);
  for (const int precision : {0, 1, 2}) {
    run(precision, 0.7);
    expect_winner(expected(precision, 0.7));
  }
}

TEST_F(Draws, SkipTheMaskNanAndMinusInfinity) {
  logits_[5] = std::numeric_limits<float>::quiet_NaN();
  for (const std::size_t i : {7u, 40u}) logits_[i] = -std::numeric_limits<float>::infinity();
  lab_.set_row(0, logits_);
  const Winner first = expected(0, 1.0);
  run(0, 1.0, first.token);
  const Winner second = expected(0, 1.0, first.token);
  EXPECT_NE(second.token, first.token);
  expect_winner(second);
  // Padding after the last token.
  run(0, 1.0, first.token, second.token);
  EXPECT_LT(lab_.state().gp[5], second.token);
  // Nothing to draw: the registers keep their values.
  lab_.set_row(0, std::vector<float>(kRowLanes * kRows, -std::numeric_limits<float>::infinity()));
  run(1, 1.0);
  EXPECT_EQ(lab_.state().gp[5], 9u);
  EXPECT_EQ(lab_.state().fp_accumulator[2], 0.0);
}

TEST_F(Draws, TheLowestLaneWinsTies) {
  // Far above the noise's resolution in BF16, all keys of equal logits are equal.
  lab_.set_row(0, std::vector<float>(kRowLanes * kRows, 65536.0f));
  run(2, 1.0);
  EXPECT_EQ(lab_.state().gp[5], 1000u);
}

TEST_F(Draws, Traps) {
  EXPECT_NE(lab_.trap("C_SET_CSR gp0, draw_temperature_high\nV_RED_DRAW gp1, gp2, gp3, f1, f2, gp4")
                .find("not a finite number above 0"),
            std::string::npos);
  EXPECT_NE(lab_.trap(set("gp1", 3) + "C_SET_CSR gp1, draw_precision").find("draw_precision"), std::string::npos);
  MachineConfig config = Lab::small();
  config.noise = false;
  EXPECT_NE(Lab(config).trap("V_RED_DRAW gp1, gp2, gp3, f1, f2, gp4").find("no noise generators"), std::string::npos);
}

}  // namespace
}  // namespace dllm::npu
