// Identities that must hold for any weights, on the embedded model.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "dllm/model.h"

namespace dllm {
namespace {

constexpr const char* kPrompt = "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?";

LanguageModel load(int threads = 0, const std::string& isa = "") {
  LoadOptions options;
  options.threads = threads;
  options.isa = isa;
  return *LanguageModel::load("", options);
}

Generation run(const LanguageModel& model, const GenerateOptions& options) {
  auto result = model.generate(kPrompt, options);
  EXPECT_TRUE(result) << result.error().message();
  return *result;
}

GenerateOptions base(const std::string& algorithm = "threshold") {
  GenerateOptions options;
  options.length = 64;
  options.block_length = 32;
  options.exact_length = true;
  options.decoder.name = algorithm;
  return options;
}

TEST(Invariants, SameTokensAtAnyThreadCount) {
  GenerateOptions sampled = base("origin");
  sampled.window.name = "whole";
  sampled.block_length.reset();
  sampled.decoder.options["steps"] = 16;
  sampled.temperature = 0.8;
  sampled.top_p = 0.95;
  sampled.seed = 7;
  GenerateOptions entropy = base("entropy");
  entropy.decoder.options["steps"] = 16;
  GenerateOptions adjusted = base();
  adjusted.temperature = 0.9;
  adjusted.min_p = 0.05;
  adjusted.repetition_penalty = 1.2;
  adjusted.frequency_penalty = 0.3;
  adjusted.logit_bias = "15-inf,16+0.5";
  for (const GenerateOptions& options : {base(), entropy, sampled, adjusted}) {
    const Generation one = run(load(1), options);
    for (int threads : {2, 3, 5}) {
      const Generation many = run(load(threads), options);
      EXPECT_EQ(many.ids, one.ids);
      EXPECT_EQ(many.confidence, one.confidence);
    }
  }
}

TEST(Invariants, LogitsAreBitIdenticalOnEveryInstructionSet) {
  const std::vector<std::int32_t> ids = {762, 764, 267, 765, 266, 767, 767, 15, 16, 767, 220};
  const auto best = load().logits(ids, false), scalar = load(0, "scalar").logits(ids, false);
  ASSERT_TRUE(best && scalar);
  EXPECT_EQ(*best, *scalar);
}

TEST(Invariants, ThresholdAboveOneCommitsTheBestAndItsTiesOnly) {
  GenerateOptions never = base();
  never.decoder.options["threshold"] = 1.5;
  const Generation result = run(load(), never);
  EXPECT_GT(result.stats.nfe, run(load(), base()).stats.nfe);
  EXPECT_EQ(result.stats.forced, 0);
  // What one pass commits is within the tie width of dInfer's rule, apart from the float64 rounding of c - 1e-5.
  std::map<std::int32_t, std::pair<double, double>> range;
  for (std::size_t i = 0; i < result.ids.size(); ++i) {
    const double c = result.confidence[i];
    const auto [entry, first] = range.try_emplace(result.commit_step[i], c, c);
    entry->second = {std::min(entry->second.first, c), std::max(entry->second.second, c)};
  }
  EXPECT_EQ(range.size(), static_cast<std::size_t>(result.stats.nfe));
  for (const auto& [pass, limits] : range) EXPECT_LE(limits.second - limits.first, 1.0001e-5) << "pass " << pass;
}

TEST(Invariants, DecodersThatComeToTheSame) {
  const LanguageModel model = load();
  const auto same = [&](const GenerateOptions& a, const GenerateOptions& b) {
    const Generation x = run(model, a), y = run(model, b);
    EXPECT_EQ(x.ids, y.ids) << a.decoder.name << ' ' << b.decoder.name;
    EXPECT_EQ(x.commit_step, y.commit_step) << a.decoder.name << ' ' << b.decoder.name;
    EXPECT_EQ(x.confidence, y.confidence) << a.decoder.name << ' ' << b.decoder.name;
  };
  GenerateOptions credit = base("credit");
  credit.decoder.options["credit_alpha"] = 0;
  same(credit, base("threshold"));

  GenerateOptions fixed = base("low-confidence"), sdar = base("sdar-static");
  fixed.decoder.options["steps"] = sdar.decoder.options["steps"] = 20;
  same(sdar, fixed);

  // With a minimum of one token per step, LLaDA2's and SDAR's rules differ only in < and <=.
  same(base("llada2"), base("sdar-dynamic"));

  // No run's best exceeds a low threshold above 1: what remains is the strict threshold rule.
  GenerateOptions hierarchical = base("hierarchical"), never = base("hierarchical-remask");
  hierarchical.decoder.options["low_threshold"] = never.decoder.options["low_threshold"] = 2;
  same(hierarchical, base("llada2"));
  never.decoder.options["remask_threshold"] = 0;  // no token is less likely than impossible
  same(never, hierarchical);

  // An empty bound leaves one position per pass, the most certain.
  GenerateOptions bound = base("entropy-bound");
  bound.decoder.options["entropy_bound"] = 0;
  EXPECT_EQ(run(model, bound).stats.nfe, 64);
}

TEST(Invariants, DraftsWithoutEditsOnlyCostAPassPerBlock) {
  const LanguageModel model = load();
  GenerateOptions edit = base("draft-edit");
  edit.decoder.options["edit_threshold"] = 2;
  const Generation drafts = run(model, base("llada2")), checked = run(model, edit);
  EXPECT_EQ(checked.ids, drafts.ids);
  EXPECT_EQ(checked.stats.nfe, drafts.stats.nfe + 2);
  edit.decoder.options["max_post_steps"] = 0;
  EXPECT_EQ(run(model, edit).stats.nfe, drafts.stats.nfe);
}

TEST(Invariants, EveryDecoderAnswersTheSameAtAnyThreadCount) {
  const LanguageModel one = load(1), three = load(3);
  int refused = 0;
  for (const MethodInfo& decoder : options_info().parts.front().methods) {
    const std::string& name = decoder.name;
    if (!one.resolve(base(name))) {
      ++refused;
      continue;
    }
    GenerateOptions options = base(name);
    options.length = 32;
    options.block_length = 16;
    const Generation a = run(one, options), b = run(three, options);
    EXPECT_EQ(a.ids, b.ids) << name;
    EXPECT_EQ(a.confidence, b.confidence) << name;
    EXPECT_EQ(a.stats.forced, 0) << name;
    EXPECT_LE(a.stats.nfe, 32 + 2 * 16) << name;
    EXPECT_EQ(a.stats.committed_tokens, 32) << name;
  }
  EXPECT_LE(refused, 2) << "levenshtein: the model names no edit tokens; s2d2: it sees in all directions";
}

TEST(Invariants, OneBlockEqualsTheWholeWindow) {
  GenerateOptions block = base(), whole = base();
  block.block_length = 64;
  whole.window.name = "whole";
  whole.block_length.reset();
  EXPECT_EQ(run(load(), block).ids, run(load(), whole).ids);
}

TEST(Invariants, EarlyStopKeepsTheAnswer) {
  GenerateOptions early = base();
  early.exact_length = false;
  const Generation stopped = run(load(), early), full = run(load(), base());
  EXPECT_EQ(stopped.text, full.text);
  EXPECT_EQ(stopped.hash, full.hash);
  EXPECT_LE(stopped.stats.nfe, full.stats.nfe);
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
}

TEST(Invariants, SeedsDecideSampledTokens) {
  GenerateOptions options = base("random");
  options.temperature = 2.0;
  options.seed = 1;
  const Generation a = run(load(), options), again = run(load(), options);
  EXPECT_EQ(a.ids, again.ids);
  options.seed = 2;
  EXPECT_NE(a.ids, run(load(), options).ids);
}

TEST(Invariants, GuidanceOfScaleZeroIsNoGuidance) {
  GenerateOptions guided = base();
  guided.cfg_scale = 1e-9;
  const Generation a = run(load(), guided), b = run(load(), base());
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.stats.nfe, 2 * b.stats.nfe);
}

TEST(Invariants, CallbackSeesEveryStepAndMayStop) {
  int calls = 0;
  const LanguageModel model = load();
  const auto result = model.generate(kPrompt, base("low-confidence"), [&](const StepEvent& event) {
    EXPECT_EQ(event.step, calls);
    EXPECT_EQ(event.masked, 64 - calls - 1);
    return ++calls < 5;
  });
  ASSERT_TRUE(result);
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(result->finish, FinishReason::kCancelled);
  EXPECT_EQ(result->stats.committed_tokens, 5);
  std::stop_source source;
  source.request_stop();
  const auto stopped = model.generate(kPrompt, base(), {}, source.get_token());
  ASSERT_TRUE(stopped);
  EXPECT_EQ(stopped->stats.nfe, 0);
}

TEST(Options, BadValuesAreUsageErrorsThatNameTheFlag) {
  const LanguageModel model = load();
  const auto refuse = [&](auto change, const char* flag) {
    GenerateOptions options;
    change(options);
    const auto result = model.generate(kPrompt, options);
    ASSERT_FALSE(result) << flag;
    EXPECT_EQ(result.error().code, ErrorCode::kUsage) << flag;
    EXPECT_NE(result.error().message().find(flag), std::string::npos) << result.error().message();
  };
  refuse([](GenerateOptions& o) { o.decoder.name = "treshold"; }, "--algorithm");
  refuse([](GenerateOptions& o) { o.cache.name = "big"; }, "--cache");
  refuse([](GenerateOptions& o) { o.length = 0; }, "--canvas-length");
  refuse([](GenerateOptions& o) { o.length = 100000; }, "--canvas-length");
  refuse([](GenerateOptions& o) { o.temperature = -1; }, "--temp");
  refuse([](GenerateOptions& o) { o.top_p = 1.5; }, "--top-p");
  refuse([](GenerateOptions& o) { o.decoder = {"hierarchical", {{"low_threshold", -0.1}}}; }, "--low-threshold");
  refuse([](GenerateOptions& o) { o.decoder = {"hierarchical-remask", {{"remask_threshold", 1.1}}}; },
         "--remask-threshold");
  refuse([](GenerateOptions& o) { o.decoder = {"entropy-bound", {{"entropy_bound", -1}}}; }, "--entropy-bound");
  refuse(
      [](GenerateOptions& o) {
        o.decoder = {"entropy-exit", {{"entropy_threshold", std::numeric_limits<double>::quiet_NaN()}}};
      },
      "--entropy-threshold");
  refuse([](GenerateOptions& o) { o.decoder = {"entropy-exit", {{"schedule", "sine"}}}; }, "--schedule");
  refuse([](GenerateOptions& o) { o.decoder = {"credit", {{"credit_alpha", -1}}}; }, "--credit-alpha");
  refuse([](GenerateOptions& o) { o.decoder = {"credit", {{"credit_beta", 1.5}}}; }, "--credit-beta");
  refuse([](GenerateOptions& o) { o.decoder = {"credit", {{"credit_gamma", -1}}}; }, "--credit-gamma");
  refuse([](GenerateOptions& o) { o.decoder = {"draft-edit", {{"edit_threshold", 3}}}; }, "--edit-threshold");
  refuse([](GenerateOptions& o) { o.decoder = {"draft-edit", {{"max_post_steps", -1}}}; }, "--max-post-steps");
  refuse([](GenerateOptions& o) { o.decoder.name = "credit", o.temperature = 1; }, "--temperature");
}

}  // namespace
}  // namespace dllm
