#include "npu_backend/accuracy/numerics_profile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "npu_backend/accuracy/sampling.h"
#include "npu_compiler/testing/reference/executor.h"

namespace dllm::npu::accuracy {
namespace {

const char* const kWhole = R"(
name = "mine"
summary = "for a test"
[formats]
weight = "mxint4:16:plena"
activation = "mxint8:32:ocp"
key = "q8_0"
value = "f16"
logits = "mxfp8_e4m3:32:ocp"
[precision]
vector = "f16"
sampling = "mxfp8"
)";

std::string changed(std::string_view from, std::string_view to) {
  std::string text = kWhole;
  return text.replace(text.find(from), from.size(), to);
}

TEST(NumericsProfile, ReadsEveryKey) {
  const auto profile = parse_numerics(kWhole, "mine.toml");
  ASSERT_TRUE(profile.has_value()) << profile.error().message();
  EXPECT_EQ(profile->weight.name(), "mxint4:16:plena");
  EXPECT_EQ(profile->key.name(), "q8_0");
  EXPECT_EQ(profile->value.name(), "f16");
  EXPECT_EQ(profile->vector, VectorPrecision::kF16);
  EXPECT_EQ(profile->sampling, SamplingPrecision::kMXFP8);
  EXPECT_EQ(profile->device, "dart-2048");
  EXPECT_FALSE(profile->on_machine());
  EXPECT_DOUBLE_EQ(profile->weight.bits(), 4.5);
  EXPECT_DOUBLE_EQ(profile->key.bits(), 8.5);
}

TEST(NumericsProfile, RefusesWhatItDoesNotKnow) {
  for (const auto& [from, to, told] : {std::tuple{"q8_0", "q9_9", "mine.toml:7"},
                                       {"vector = \"f16\"", "vector = \"f64\"", "mine.toml:11"},
                                       {"sampling = \"mxfp8\"", "sampling = \"int8\"", "mine.toml:12"},
                                       {"summary", "sumary", "summary"},
                                       {"value = ", "values = ", "value"},
                                       {"mxfp8_e4m3:32:ocp", "q4_0", "logits"},
                                       {"summary = \"for a test\"", "summary = \"\"\nrounding = \"up\"", "rounding"}}) {
    const auto profile = parse_numerics(changed(from, to), "mine.toml");
    ASSERT_FALSE(profile.has_value()) << to;
    EXPECT_NE(profile.error().message().find(told), std::string::npos) << profile.error().message();
  }
  const auto missing = load_numerics("w4a8kv5");
  ASSERT_FALSE(missing.has_value());
  EXPECT_NE(missing.error().message().find("w4a8kv4"), std::string::npos) << missing.error().message();
}

TEST(NumericsProfile, Smoothing) {
  EXPECT_FALSE(parse_numerics(kWhole, "mine.toml")->smoothing.any());
  const auto with = [](const std::string& table) { return parse_numerics(kWhole + table, "mine.toml"); };
  const auto profile = with("[smoothing]\nkeys = 'mean'\nvalues = 'none'\nalpha = 0.5\n");
  ASSERT_TRUE(profile.has_value()) << profile.error().message();
  EXPECT_EQ(profile->smoothing, (Smoothing{SmoothingCentre::kMean, SmoothingCentre::kNone, 0.5}));
  EXPECT_FALSE(profile->on_machine());
  for (const char* bad : {"keys = 'median'\nvalues = 'none'\nalpha = 1", "keys = 'mean'\nvalues = 'none'\nalpha = 1.5",
                          "keys = 'mean'\nalpha = 1", "keys = 'mean'\nvalues = 'mean'\nalpha = 1\nblock = 2"}) {
    const auto refused = with(std::string("[smoothing]\n") + bad);
    ASSERT_FALSE(refused.has_value()) << bad;
    EXPECT_NE(refused.error().message().find("mine.toml:1"), std::string::npos) << refused.error().message();
  }
}

TEST(NumericsProfile, ShippedOnesAreSoundAndCaseDoesNotMatter) {
  EXPECT_EQ(numerics_names(), (std::vector<std::string>{"bf16", "f32", "fp16-q4_0", "mxfp4", "mxfp8", "w4a8kv4",
                                                        "w4a8kv4-smooth", "w8a8kv8"}));
  for (const std::string& name : numerics_names()) {
    const auto profile = load_numerics(name);
    ASSERT_TRUE(profile.has_value()) << profile.error().message();
    EXPECT_TRUE(load_numerics(profile->name).has_value()) << profile->name;
    EXPECT_TRUE(profile->machine().has_value()) << name;
    EXPECT_EQ(profile->on_machine(), name != "f32") << name;
  }
}

TEST(OperandFormat, RoundsAsItsCodec) {
  std::vector<float> x(64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.1f * static_cast<float>(i) - 2.7f;
  for (const char* name : {"f32", "f16", "q4_0", "q8_0", "bf16", "mxint4:32:ocp", "mxfp8_e4m3:16:ocp"}) {
    const OperandFormat format = *OperandFormat::from_name(name);
    EXPECT_EQ(format.name(), name);
    std::vector<float> rounded = x;
    round_through(format, rounded);
    Operand operand;
    quantize(format, format.fixed(), x, operand);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(rounded[i], x[i], format.bits() > 10 ? 0.02 : format.bits() > 5 ? 0.2 : 0.5) << name;
      const float back = format.fixed() ? std::ldexp(operand.lanes[i],
                                                     operand.exponents[i / static_cast<std::size_t>(format.block())] -
                                                         format.machine_format().fraction())
                                        : operand.lanes[i];
      EXPECT_EQ(back, rounded[i]) << name;
    }
  }
  EXPECT_FALSE(OperandFormat::from_name("q5_1"));
}

TEST(Sampling, ConfidencesInEveryPrecision) {
  std::vector<float> logits;
  for (int i = 0; i < 150; ++i) logits.push_back(round_to(VectorPrecision::kBF16, std::sin(static_cast<float>(i)) * 3));
  logits[77] = 9.0f;
  double sum = 0;
  for (const float z : logits) sum += std::exp(static_cast<double>(z) - 9.0);
  RowScore score;
  score.token = 77, score.logit = 9.0f, score.confidence = 1 / sum, score.log_odds = 4;
  reduce_confidence(SamplingPrecision::kF64, logits, 64, score);
  EXPECT_EQ(score.confidence, 1 / sum);
  EXPECT_EQ(score.log_odds, 4);
  reduce_confidence(SamplingPrecision::kF32, logits, 64, score);
  EXPECT_NEAR(score.confidence, 1 / sum, 1e-6);
  EXPECT_NE(score.confidence, 1 / sum);
  std::vector<Bf16> bits;
  for (const float z : logits) bits.push_back(f32_to_bf16(z));
  reduce_confidence(SamplingPrecision::kBF16, logits, 64, score);
  EXPECT_EQ(score.confidence, static_cast<double>(bf16_to_f32(reference::reduce_logits(bits, 64).confidence)));
  EXPECT_NEAR(score.log_odds, std::log(score.confidence / (1 - score.confidence)), 1e-9);
  NumericsProfile profile;
  profile.sampling = SamplingPrecision::kMXFP8;
  std::vector<float> stored = logits;
  store_logits(profile, stored);
  EXPECT_EQ(stored[77], 9.0f);
  EXPECT_NE(stored, logits);
  EXPECT_NEAR(stored[149], logits[149], 0.2f);
}

}  // namespace
}  // namespace dllm::npu::accuracy
