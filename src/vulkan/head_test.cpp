// The head on the device: chunks are reduced with the bits of the CPU's kernels, and no logits are stored unless a
// request needs them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/test_data.h"
#include "cpu/reduction.h"
#include "cpu/score_head.h"
#include "cpu/testing/backend_logits.h"
#include "cpu/testing/tiny_model.h"
#include "vulkan/on_device.h"
#include "vulkan/testing/operator_rig.h"
#include "vulkan/testing/test_device.h"

namespace dllm::vulkan {
namespace {

using cpu::ReducedChunk;
using cpu::test::Random;
using cpu::test::random_floats;
using test::OperatorRig;
using test::test_device;

constexpr float kHeadNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kHeadInf = std::numeric_limits<float>::infinity();

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

std::string chunk_difference(const ReducedChunk& a, const cpu::Partial& b) {
  std::string text;
  if (a.top.token != b.top.token) text += fmt::format(" top {} not {}", a.top.token, b.top.token);
  if (a.second.token != b.second.token) text += fmt::format(" second {} not {}", a.second.token, b.second.token);
  if (b.top.token < 0) return text;
  if (!same_bits(a.top.logit, b.top.logit)) text += " the top's logit";
  if (b.second.token >= 0 && !same_bits(a.second.logit, b.second.logit)) text += " the second's logit";
  if (!same_bits(a.tail.rest, b.tail[0].rest)) text += fmt::format(" rest {} not {}", a.tail.rest, b.tail[0].rest);
  if (!same_bits(a.tail.weighted, b.tail[0].weighted))
    text += fmt::format(" weighted {} not {}", a.tail.weighted, b.tail[0].weighted);
  return text;
}

std::optional<Operators>& exact_operators = test::shared_by_tests<Operators>();

/// Logits of a vocabulary reduced by the device and by the scalar kernels; what differs.
class ReduceChunks : public test::OnDevice {
 protected:
  /// By the form of fused multiply-adds that the device has, and by the other one, which is right everywhere.
  std::string compare(const std::vector<float>& logits, double beta, float cap,
                      const std::vector<cpu::AskedToken>& asked = {}) {
    if (!exact_operators) {
      Arithmetic arithmetic = OperatorRig::operators().arithmetic();
      arithmetic.fused64 = Fused64::kExact;
      exact_operators.emplace(test_device(), arithmetic);
    }
    return compare(OperatorRig::operators(), logits, beta, cap, asked) +
           compare(*exact_operators, logits, beta, cap, asked);
  }

  std::string compare(Operators& operators, const std::vector<float>& logits, double beta, float cap,
                      const std::vector<cpu::AskedToken>& asked) {
    const auto width = static_cast<std::int64_t>(logits.size());
    const std::int64_t chunks = (width + cpu::kHeadChunk - 1) / cpu::kHeadChunk;
    OperatorRig rig;
    std::vector<std::uint32_t> words(cpu::kMostAsked);
    for (std::size_t i = 0; i < asked.size(); ++i)
      words[i] = static_cast<std::uint32_t>(asked[i].token) | (asked[i].ruled ? kRuledToken : 0);
    const std::vector<ReduceRow> rows = {{beta, static_cast<std::uint32_t>(asked.size()), 0}};
    const VkDeviceAddress result = rig.room(chunks * 8), answers = rig.room(cpu::kMostAsked);
    op::ScoreHead head;
    head.softcap = cap;
    rig.run(operators.reduce_chunks(head, 0, width, chunks,
                                    {rig.put(logits), rig.put(rows), rig.put(words), result, answers}),
            1);
    std::vector<float> capped = logits;
    const cpu::KernelSet& scalar = *cpu::find_kernel_set("scalar");
    if (cap != 0) scalar.softcap(logits.data(), cap, width, capped.data());
    const std::vector<float> answered = rig.get(answers, cpu::kMostAsked);
    std::string text;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const auto token = static_cast<std::size_t>(asked[i].token);
      if (!same_bits(answered[i], capped[token])) text += fmt::format(" the answer for {}", token);
    }
    for (const cpu::AskedToken& token : asked)
      if (token.ruled) capped[static_cast<std::size_t>(token.token)] = kHeadNan;
    cpu::ReductionSpec spec({}, width);
    spec.beta[0] = beta;
    const auto device = rig.get<ReducedChunk>(result, chunks);
    for (std::int64_t c = 0; c < chunks; ++c) {
      const std::int64_t first = c * cpu::kHeadChunk;
      const std::span<float> z(capped.data() + first,
                               static_cast<std::size_t>(std::min(cpu::kHeadChunk, width - first)));
      text += chunk_difference(device[static_cast<std::size_t>(c)],
                               reduce_chunk(scalar, spec, 0, static_cast<TokenId>(first), z));
    }
    return text;
  }

  Random random_{9};
};

TEST_F(ReduceChunks, OfEverySizeAndSpread) {
  for (const std::int64_t width : {1, 2, 7, 63, 64, 65, 1000, 1024, 1025, 5000})
    for (const float spread : {0.01f, 3.f, 40.f, 900.f})
      for (const double beta : {1., 1 / 0.7, 1 / 3.})
        EXPECT_EQ(compare(random_floats(random_, width, spread), beta, 0), "") << width << " " << spread << " " << beta;
}

TEST_F(ReduceChunks, TiesZerosAndWhatIsNoNumber) {
  std::vector<float> z(1500, -3.f);
  z[70] = z[6] = z[1400] = 2.f;
  z[9] = z[1025] = kHeadNan;
  z[33] = -kHeadInf;
  EXPECT_EQ(compare(z, 1, 0), "");
  z[900] = z[901] = kHeadInf;  // equal infinities
  EXPECT_EQ(compare(z, 1, 0), "");
  EXPECT_EQ(compare(std::vector<float>(100, kHeadNan), 1, 0), "") << "nothing to choose";
  EXPECT_EQ(compare(std::vector<float>(100, -kHeadInf), 1, 0), "");
  std::vector<float> zeros(200, 0.f);
  for (std::size_t i = 0; i < zeros.size(); i += 3) zeros[i] = -0.f;
  EXPECT_EQ(compare(zeros, 1, 0), "");
  // Terms at the end of what float64 has.
  std::vector<float> far(1024, 0.f);
  far[0] = 720.f;
  for (std::size_t i = 1; i < far.size(); ++i) far[i] = 12.f + 0.02f * static_cast<float>(i % 32);
  EXPECT_EQ(compare(far, 1, 0), "");
}

TEST_F(ReduceChunks, CapsAndTokensThatAreAskedFor) {
  EXPECT_EQ(compare(random_floats(random_, 3000, 60.f), 1, 30.f), "");
  std::vector<float> z = random_floats(random_, 2500, 5.f);
  z[1030] = 50;  // the largest is left out, then others that are not
  EXPECT_EQ(compare(z, 1, 0, {{1030, true}, {3, true}, {2499, true}, {1030, false}, {77, false}, {1023, false}}), "");
  std::vector<cpu::AskedToken> many;
  for (TokenId t = 0; t < cpu::kMostAsked; ++t) many.push_back({t * 11, t % 4 == 0});
  EXPECT_EQ(compare(z, 1, 25.f, many), "");
}

/// A model with a large vocabulary on both backends.
struct LargeHead {
  explicit LargeHead(TensorType type) : model(shape_of(type)) {
    CpuOptions options;
    options.threads = 1;
    here = cpu::test::make_backend(model, options);
    VulkanOptions vulkan;
    vulkan.threads = 1;
    auto made = make_backend_on(test_device(), OperatorRig::operators().arithmetic(), ModelDesc{}, model.factory(),
                                model.weights(), vulkan);
    EXPECT_TRUE(made) << made.error().message();
    there = std::move(*made);
  }
  static cpu::test::TinyShape shape_of(TensorType type) {
    cpu::test::TinyShape shape;
    shape.vocab = 40'000;
    shape.layers = 1;
    shape.type = type;
    return shape;
  }

  /// Every number of the scores of two passes; what differs.
  std::string compare(std::vector<SequenceStep> batch) {
    std::vector<std::unique_ptr<KvCache>> caches;
    const auto run = [&](auto& backend) {
      for (SequenceStep& step : batch) {
        caches.push_back(*backend->make_cache(64));
        step.cache = caches.back().get();
      }
      return *backend->forward(batch);
    };
    const std::vector<Scores> expected = run(here), actual = run(there);
    std::string text;
    for (std::size_t s = 0; s < expected.size(); ++s) {
      if (actual[s].rows.size() != expected[s].rows.size()) return "other rows";
      for (std::size_t i = 0; i < expected[s].rows.size(); ++i) {
        const RowScore &a = actual[s].rows[i], &b = expected[s].rows[i];
        if (a.position != b.position || a.token != b.token || a.overruled != b.overruled ||
            !same_bits(a.logit, b.logit))
          text += fmt::format(" the choice of row {}", i);
        if (!same_bits(a.confidence, b.confidence) || !same_bits(a.log_odds, b.log_odds)) text += " a confidence";
        if (!same_bits(a.margin, b.margin) || !same_bits(a.entropy, b.entropy)) text += " a margin or an entropy";
      }
      if (actual[s].queried != expected[s].queried) text += " the queries";
      if (actual[s].logits != expected[s].logits) text += " the logits";
      for (std::size_t i = 0; i < expected[s].top.size(); ++i)
        if (actual[s].top[i].token != expected[s].top[i].token) text += " the list";
    }
    return text;
  }

  static SequenceStep step(Position end, TokenId seed = 0) {
    SequenceStep step;
    for (Position p = 0; p < end; ++p) {
      step.plan.rows.push_back({p, (p * 37 + seed) % 150});
      step.plan.scored.push_back(p);
    }
    step.plan.visible = {{0, end}};
    return step;
  }

  cpu::test::TinyModel model;
  std::unique_ptr<CpuBackend> here;
  std::unique_ptr<VulkanBackend> there;
};

class Heads : public test::OnDevice {};

TEST_F(Heads, StoreNoLogits) {
  for (const TensorType type : {TensorType::kF32, TensorType::kQ4_0}) {
    LargeHead head(type);
    const std::int64_t before = head.there->device_bytes();
    EXPECT_EQ(head.compare({LargeHead::step(32)}), "");
    EXPECT_EQ(head.there->logit_bytes(), 0);
    EXPECT_LT(head.there->device_bytes() - before, 32 * 40'000 * 4 + (std::int64_t{1} << 20))
        << "all logits would not fit in what the pass allocated beside its two parts";
    EXPECT_EQ(head.there->recordings(), 1);
    // A request for all logits is recorded anew, and only its rows are kept.
    SequenceStep whole = LargeHead::step(3, 5);
    whole.request.logits = true;
    EXPECT_EQ(head.compare({LargeHead::step(9), whole, LargeHead::step(4, 8)}), "");
    EXPECT_EQ(head.there->logit_bytes(), 4 * 40'000 * 4) << "3 rows, in room for 4";
    EXPECT_EQ(head.compare({LargeHead::step(20)}), "");
    EXPECT_EQ(head.there->recordings(), 2);
  }
}

TEST_F(Heads, RulesAndQueries) {
  LargeHead head(TensorType::kF32);
  SequenceStep step = LargeHead::step(6);
  for (const TokenId token : {4, 1023, 1024, 39'999}) step.request.rules.push_back({token, false, true});
  step.request.rules.push_back({17'000, false, false});
  step.request.rules.push_back({20'000, true, false});
  for (std::int32_t row = 0; row < 6; ++row) step.request.queries.push_back({row, row * 7'000 + 4});
  EXPECT_EQ(head.compare({step, LargeHead::step(3)}), "");
  // The winners may not be chosen.
  const std::vector<Scores> first = [&] {
    auto cache = *head.here->make_cache(64);
    step.cache = cache.get();
    return *head.here->forward({&step, 1});
  }();
  for (const RowScore& row : first[0].rows) step.request.rules.push_back({row.token, false, true});
  EXPECT_EQ(head.compare({step}), "");
  EXPECT_EQ(head.there->logit_bytes(), 0);
  // More rules in a chunk than are reduced at once.
  for (TokenId token = 2000; token < 2020; ++token) step.request.rules.push_back({token, false, true});
  EXPECT_EQ(head.compare({step}), "");
  EXPECT_GT(head.there->logit_bytes(), 0);
}

TEST_F(Heads, RequestsThatReadEveryLogit) {
  LargeHead head(TensorType::kQ8_0);
  std::vector<ScoreRequest> requests(6);
  requests[0].temperature = 0.8;
  requests[1].top_k = 5;
  requests[2].top_tokens = 3;
  requests[3].adjustments.tokens = {{77, false, 0, 9.f}};
  requests[4].top_p = 0.9;
  requests[4].temperature = 0.5;
  for (std::int32_t q = 0; q < 100; ++q) requests[5].queries.push_back({0, 300 * q});
  for (const ScoreRequest& request : requests) {
    SequenceStep step = LargeHead::step(2);
    step.request = request;
    EXPECT_EQ(head.compare({LargeHead::step(5, 3), step}), "");
  }
  SequenceStep guided = LargeHead::step(4);
  guided.guidance = Guidance{1, 1.5f};
  EXPECT_EQ(head.compare({guided, LargeHead::step(4, 9), LargeHead::step(4, 2)}), "");
}

/// A device that has no float64 and loses subnormal numbers: fused multiply-adds are computed by integers.
TEST_F(Heads, WithoutFloat64TheProcessorReduces) {
  const cpu::test::TinyModel model({});
  Arithmetic none = OperatorRig::operators().arithmetic();
#ifndef DLLM_SANITIZED  // drivers take long to compile the shaders of this form
  none.form = ShaderForm::kIntegers;
  none.correct_division = none.correct_roots = true;
#endif
  none.fused64 = Fused64::kNone;
  auto backend = *make_backend_on(test_device(), none, ModelDesc{}, model.factory(), model.weights(), {});
  CpuOptions options;
  options.threads = 1;
  auto here = cpu::test::make_backend(model, options);
  SequenceStep step = LargeHead::step(5);
  const auto cache = *backend->make_cache(64), other = *here->make_cache(64);
  step.cache = cache.get();
  const auto actual = *backend->forward({&step, 1});
  step.cache = other.get();
  const auto expected = *here->forward({&step, 1});
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(actual[0].rows[i].confidence, expected[0].rows[i].confidence);
  EXPECT_GT(backend->logit_bytes(), 0);
}

/// Whatever this device's own form is, the other one is right.
TEST_F(Heads, ExactFusedMultiplyAdds) {
  struct {
    VkDeviceAddress cases, results;
    std::uint32_t count, zero;
  } push{};
  const Arithmetic& arithmetic = OperatorRig::operators().arithmetic();
  const auto pipeline = Pipeline::make(test_device(), "fused64", arithmetic.form, arithmetic.constants());
  ASSERT_TRUE(pipeline);
  const Cases64 cases = self_test_cases64(), right = right_results64(cases);
  OperatorRig rig;
  const auto count = static_cast<std::int64_t>(cases.size());
  push = {rig.put(cases), rig.room(6 * count), static_cast<std::uint32_t>(count), 0};
  auto commands = Commands::begin(test_device());
  ASSERT_TRUE(commands);
  commands->dispatch(*pipeline, push, GroupCounts{static_cast<std::uint32_t>((count + 63) / 64)});
  ASSERT_TRUE(commands->end());
  ASSERT_TRUE(commands->run("a test"));
  const auto seen = rig.get<std::array<double, 3>>(push.results, count);
  int wrong = 0;
  for (std::size_t i = 0; i < cases.size(); ++i)
    for (std::size_t j = 0; j < 3; ++j) wrong += same_bits(seen[i][j], right[i][j]) ? 0 : 1;
  EXPECT_EQ(wrong, 0);
}

TEST(SelfTest64, ChoosesTheFormThatIsRight) {
  DeviceFacts facts;
  const auto wrong = [](Cases64 results) {
    for (auto& result : results) result[0] = std::nextafter(result[0], 0.);
    return results;
  };
  const auto choose = [&](bool native, bool exact, ShaderForm form = ShaderForm::kNative) {
    return *choose_fused64(facts, form, [&](const Cases64& cases, Fused64 fused) -> Expected<Cases64> {
      const bool right = fused == Fused64::kNative ? native : exact;
      return right ? right_results64(cases) : wrong(right_results64(cases));
    });
  };
  EXPECT_EQ(choose(true, true), Fused64::kNone) << "no float64";
  facts.has_float64 = true;
  EXPECT_EQ(choose(true, true), Fused64::kNative);
  EXPECT_EQ(choose(false, true), Fused64::kExact);
  EXPECT_EQ(choose(false, false), Fused64::kNone);
  EXPECT_EQ(choose(true, true, ShaderForm::kIntegers), Fused64::kNone) << "its shaders are not built";
  // An fma that rounds twice is among the cases.
  const Cases64 cases = self_test_cases64(), right = right_results64(cases);
  int twice = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const volatile double product = cases[i][0] * cases[i][1];
    twice += product + cases[i][2] != right[i][0] ? 1 : 0;
  }
  EXPECT_GT(twice, 500);
}

}  // namespace
}  // namespace dllm::vulkan
