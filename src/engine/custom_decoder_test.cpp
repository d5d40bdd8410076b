// Decoders of programs that use the library.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "dllm/decoder.h"
#include "dllm/model.h"

namespace dllm {
namespace {

using Decide = std::function<std::vector<Decision>(const DecodingState&, std::span<const Prediction>)>;

/// What a test wants it to do.
struct Script {
  Decide decide{};
  std::function<std::vector<std::int32_t>(const DecodingState&)> wanted{};
  std::function<bool(const DecodingState&)> holds{};
};

class Scripted : public CustomDecoder {
 public:
  explicit Scripted(const Script& script) : script_(script) {}
  std::vector<std::int32_t> wanted(const DecodingState& state) override {
    return script_.wanted ? script_.wanted(state) : CustomDecoder::wanted(state);
  }
  std::vector<Decision> decide(const DecodingState& state, std::span<const Prediction> predictions) override {
    return script_.decide(state, predictions);
  }
  bool holds(const DecodingState& state) override { return script_.holds && script_.holds(state); }

 private:
  const Script& script_;
};

std::vector<Decision> first_masks(std::span<const Prediction> predictions, std::size_t count) {
  std::vector<Decision> result;
  for (const Prediction& one : predictions)
    if (one.masked && result.size() < count) result.push_back({.position = one.position});
  return result;
}

class CustomDecoders : public ::testing::Test {
 protected:
  /// Registers the script under a name, with these facts.
  void declare(const Script& script, DecoderDeclaration declaration) {
    declaration.meaning = "of a test";
    declared_.push_back(declaration.name);
    declaration.make = [&script](const OptionMap&) { return std::make_unique<Scripted>(script); };
    const auto added = register_custom_decoder(std::move(declaration));
    ASSERT_TRUE(added) << added.error().message();
  }
  Expected<Generation> answer(const std::string& name, const OptionMap& options = {}, std::int32_t length = 8) {
    GenerateOptions given;
    given.decoder = {name, options};
    given.length = length;
    given.exact_length = true;
    return model.generate("3+4=", given);
  }

  /// Other tests of this process may try every decoder, after the script has gone.
  void TearDown() override {
    static const Script kPlain{
        .decide = [](const DecodingState&, std::span<const Prediction> all) { return first_masks(all, 1); }};
    for (const std::string& name : std::exchange(declared_, {})) declare(kPlain, {.name = name, .meaning = ""});
  }

  LanguageModel model = *LanguageModel::load("");

 private:
  std::vector<std::string> declared_{};
};

OptionInfo number(std::string key, double standard) {
  OptionInfo info;
  info.key = std::move(key);
  info.type = OptionType::kNumber;
  info.standard = standard;
  info.minimum = 0, info.maximum = 1;
  info.meaning = "least confidence";
  return info;
}

TEST_F(CustomDecoders, EqualTheEnginesWithTheSameRule) {
  DecoderDeclaration sure{.name = "custom-sure", .meaning = "confident ones", .options = {number("custom_from", 0.9)}};
  struct Sure : CustomDecoder {
    explicit Sure(double least) : from(least) {}
    std::vector<Decision> decide(const DecodingState&, std::span<const Prediction> predictions) override {
      std::vector<Decision> result;
      for (const Prediction& one : predictions)
        if (one.eligible && one.confidence >= from) result.push_back({.position = one.position});
      return result;
    }
    double from;
  };
  sure.make = [](const OptionMap& options) {
    return std::make_unique<Sure>(std::get<double>(options.at("custom_from")));
  };
  ASSERT_TRUE(register_custom_decoder(sure));
  for (const char* window : {"block", "sliding"})
    for (const char* cache : {"none", "dual"})
      for (const double from : {0.6, 0.9}) {
        GenerateOptions own, engines;
        own.decoder = {"custom-sure", {{"custom_from", from}}};
        engines.decoder = {"threshold", {{"threshold", from}}};
        for (GenerateOptions* one : {&own, &engines}) {
          one->length = 48;
          one->window.name = window;
          one->cache.name = cache;
        }
        const auto ours = model.generate("Tell me about apples", own);
        const auto theirs = model.generate("Tell me about apples", engines);
        ASSERT_TRUE(ours && theirs);
        EXPECT_EQ(ours->ids, theirs->ids);
        EXPECT_EQ(ours->stats.nfe, theirs->stats.nfe);
      }
  EXPECT_EQ(answer("custom-sure")->options.decoder.options.at("custom_from"), OptionValue(0.9)) << "its default";
  EXPECT_EQ(answer("custom-sure", {{"custom_from", 1.5}}).error().code, ErrorCode::kUsage);
}

TEST_F(CustomDecoders, AreToldTheStateAndThePredictions) {
  std::size_t passes = 0;
  Script script;
  script.decide = [&](const DecodingState& state, std::span<const Prediction> predictions) {
    EXPECT_EQ(state.tokens.size(), static_cast<std::size_t>(state.prompt_end) + 8);
    EXPECT_EQ(state.masked.size(), state.tokens.size());
    EXPECT_EQ(state.kv_age.size(), state.tokens.size());
    EXPECT_EQ(std::accumulate(state.masked.begin(), state.masked.end(), 0), static_cast<int>(8 - passes));
    EXPECT_EQ(state.step, passes);
    EXPECT_EQ(std::pair(state.begin, state.end), std::pair(state.prompt_end, state.prompt_end + 8));
    for (const std::int32_t age : state.kv_age) EXPECT_EQ(age, 0) << "every row, every pass";
    for (const Prediction& one : predictions) {
      EXPECT_TRUE(one.masked);
      EXPECT_EQ(one.likely.size(), 3u);
      EXPECT_GE(one.likely[0].probability, one.likely[1].probability);
      if (one.likely[0].token == one.token) {
        EXPECT_NEAR(one.likely[0].probability, one.confidence, 1e-12);
      }
      EXPECT_EQ(one.logits.size(), static_cast<std::size_t>(model.vocab_size()));
      const auto best = static_cast<std::int32_t>(std::ranges::max_element(one.logits) - one.logits.begin());
      EXPECT_EQ(best, one.likely[0].token);
    }
    ++passes;
    return first_masks(predictions, 1);
  };
  declare(script, {.name = "custom-told", .meaning = "", .top_tokens = 3, .logits = true});
  ASSERT_TRUE(answer("custom-told"));
  EXPECT_EQ(passes, 8u);
}

TEST_F(CustomDecoders, KnowTheAgeOfKeysAndValues) {
  std::vector<std::vector<std::int32_t>> ages;
  Script script;
  script.wanted = [&](const DecodingState& state) {
    ages.emplace_back(state.kv_age.begin(), state.kv_age.end());
    return std::vector<std::int32_t>();
  };
  script.decide = [&](const DecodingState&, std::span<const Prediction> predictions) {
    return first_masks(predictions, 1);
  };
  declare(script, {.name = "custom-ages", .meaning = ""});
  GenerateOptions options;
  options.decoder.name = "custom-ages";
  options.cache.name = "dual";
  options.length = 4, options.exact_length = true;
  ASSERT_TRUE(model.generate("3+4=", options));
  ASSERT_EQ(ages.size(), 4u);
  for (std::size_t pass = 0; pass < 4; ++pass) {
    EXPECT_EQ(ages[pass].front(), pass == 0 ? -1 : static_cast<std::int32_t>(pass) - 1) << "the prompt's: once";
    EXPECT_EQ(ages[pass].back(), pass == 0 ? -1 : 0) << "the block's: in every pass";
  }
}

TEST_F(CustomDecoders, ReviseMaskAgainAndHold) {
  std::vector<std::vector<std::int32_t>> seen;
  std::int32_t begin = 0, other = -1;
  Script script;
  script.decide = [&](const DecodingState& state, std::span<const Prediction> predictions) -> std::vector<Decision> {
    begin = state.prompt_end;
    seen.emplace_back(state.tokens.begin(), state.tokens.end());
    if (seen.size() == 1) return first_masks(predictions, 4);
    if (seen.size() != 2) return first_masks(predictions, 8);
    for (const LikelyToken& one : predictions[0].likely)
      if (one.token != state.tokens[static_cast<std::size_t>(begin)]) other = one.token;
    auto result = first_masks(predictions, 2);
    result.push_back({begin, Decision::Kind::kRevise, other});
    result.push_back({begin + 1, Decision::Kind::kRemask});
    return result;
  };
  script.holds = [&](const DecodingState&) { return seen.size() < 5; };
  declare(script, {.name = "custom-revises", .meaning = "", .revises = true, .top_tokens = 2});
  ASSERT_TRUE(answer("custom-revises"));
  ASSERT_EQ(seen.size(), 5u) << "two passes more than its masks need";
  const auto at = [&](std::size_t pass, std::int32_t offset) {
    return seen[pass][static_cast<std::size_t>(begin + offset)];
  };
  const std::int32_t mask = seen[0].back();
  EXPECT_EQ(at(2, 0), other);
  EXPECT_EQ(at(2, 1), mask);
  EXPECT_EQ(at(1, 1) == mask, false);
  EXPECT_EQ(std::ranges::count(seen[2], mask), 3);
}

/// WINO as its authors' program has it, by what a decoder from outside can see.
struct OwnWino : CustomDecoder {
  std::int32_t block = -1;
  std::size_t last = 30;

  std::vector<std::int32_t> wanted(const DecodingState& state) override { return positions(state, 1); }
  std::vector<std::int32_t> shadowed(const DecodingState& state) override { return positions(state, 0); }
  std::vector<Decision> decide(const DecodingState& state, std::span<const Prediction> predictions) override {
    if (std::exchange(block, state.begin) != state.begin) last = 30;
    std::vector<Prediction> masks(predictions.begin(), predictions.end());
    std::erase_if(masks, [](const Prediction& one) { return !one.eligible; });
    std::ranges::stable_sort(masks, std::ranges::greater{}, &Prediction::log_odds);
    const auto sure = static_cast<std::size_t>(
        std::ranges::count_if(masks, [](const Prediction& one) { return one.confidence > 0.6; }));
    const auto share = static_cast<std::size_t>(0.7 * static_cast<double>(predictions.size()));
    const std::size_t most = std::min<std::size_t>(std::max<std::size_t>(share, 5), 20);
    masks.resize(std::min(masks.size(), std::clamp<std::size_t>(sure, 1, most)));
    std::vector<Decision> result;
    for (const Prediction& one : masks) result.push_back({.position = one.position});
    if (result.size() > 1) {
      std::vector<Prediction> doubted(state.shadows.begin(), state.shadows.end());
      std::erase_if(doubted, [](const Prediction& one) { return one.own_probability >= 0.9; });
      std::ranges::stable_sort(doubted, {}, &Prediction::own_probability);
      if (doubted.size() >= last) doubted.resize(last - 1);
      for (const Prediction& one : doubted) result.push_back({one.position, Decision::Kind::kRemask});
    }
    last = std::max<std::size_t>(masks.size(), 1);
    return result;
  }

 private:
  static std::vector<std::int32_t> positions(const DecodingState& state, std::uint8_t masked) {
    std::vector<std::int32_t> result;
    for (std::int32_t p = std::max(state.begin, state.prompt_end); p < state.end; ++p)
      if (state.masked[static_cast<std::size_t>(p)] == masked) result.push_back(p);
    return result;
  }
};

TEST_F(CustomDecoders, JudgeTokensWithoutThemselves) {
  DecoderDeclaration own{.name = "custom-wino", .meaning = "WINO", .revises = true, .shadows = true};
  own.make = [](const OptionMap&) { return std::make_unique<OwnWino>(); };
  ASSERT_TRUE(register_custom_decoder(own));
  std::size_t passes = 0, rows = 0;
  for (const char* prompt : {"Tell me about apples", "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many?",
                             "Sort these words: pear fig apple", "Copy: x y z x"}) {
    GenerateOptions ours, engines;
    ours.decoder.name = "custom-wino";
    engines.decoder.name = "wino";
    ours.length = engines.length = 64;
    const auto one = model.generate(prompt, ours), other = model.generate(prompt, engines);
    ASSERT_TRUE(one && other) << (one ? other : one).error().message();
    EXPECT_EQ(one->ids, other->ids) << prompt;
    EXPECT_EQ(one->stats.nfe, other->stats.nfe);
    EXPECT_EQ(one->stats.rows_forwarded, other->stats.rows_forwarded);
    passes += static_cast<std::size_t>(one->stats.nfe);
    rows += static_cast<std::size_t>(one->stats.rows_forwarded);
  }
  EXPECT_GT(passes, 8u);
  EXPECT_GT(rows, passes * 64);
}

/// What a script's decision is refused with.
class RefusedDecisions : public CustomDecoders {
 protected:
  using Decisions = std::vector<Decision>;
  using Positions = std::vector<std::int32_t>;
  using Kind = Decision::Kind;

  void SetUp() override {
    declare(script, {.name = "custom-commits", .meaning = ""});
    declare(script, {.name = "custom-changes", .meaning = "", .revises = true});
  }
  std::string refused(const char* name, Script given) {
    script = std::move(given);
    if (!script.decide)
      script.decide = [](const DecodingState&, std::span<const Prediction> predictions) {
        return first_masks(predictions, 1);
      };
    try {
      (void)answer(name);
    } catch (const DecisionError& error) {
      EXPECT_EQ(error.error.code, ErrorCode::kUsage);
      EXPECT_NE(error.error.where.find(name), std::string::npos);
      return error.error.what;
    }
    return "not refused";
  }
  std::string decided(const char* name, std::function<Decisions(std::int32_t begin)> all) {
    return refused(name, {.decide = [all](const DecodingState& state, auto) { return all(state.prompt_end); }});
  }
  std::string wanted(const char* name, std::function<Positions(std::int32_t begin)> all) {
    return refused(name, {.wanted = [all](const DecodingState& state) { return all(state.prompt_end); }});
  }

  Script script;
};

TEST_F(RefusedDecisions, OfOnePosition) {
  const auto has = [](const std::string& text, const char* words) { return text.find(words) != std::string::npos; };
  EXPECT_EQ(decided("custom-commits", [](auto) { return Decisions{{.position = 0}}; }), "position 0 is no candidate");
  EXPECT_TRUE(has(decided("custom-commits", [](auto p) { return Decisions{{.position = p}, {.position = p}}; }),
                  "returned twice"));
  EXPECT_TRUE(
      has(decided("custom-commits", [](auto p) { return Decisions{{p, Kind::kCommit, 5}}; }), "not among the best"));
  EXPECT_EQ(decided("custom-commits", [](auto p) { return Decisions{{p, Kind::kRemask}}; }),
            "it changes decided tokens");
  EXPECT_TRUE(has(decided("custom-changes", [](auto p) { return Decisions{{p, Kind::kRevise}}; }), "is a mask"));
  EXPECT_TRUE(has(decided("custom-changes", [](auto p) { return Decisions{{.position = p}}; }), "decided already"));
  EXPECT_TRUE(has(wanted("custom-commits", [](auto) { return Positions{0}; }), "is not between"));
  EXPECT_TRUE(has(wanted("custom-commits", [](auto p) { return Positions{p, p}; }), "returned twice"));
  EXPECT_EQ(wanted("custom-changes", [](auto p) { return Positions{p}; }), "it returned no masked position");
}

TEST_F(RefusedDecisions, WithoutEnd) {
  std::int32_t most = 0;
  Script cycle;
  cycle.decide = [&](const DecodingState& state, std::span<const Prediction> predictions) {
    Decisions all = first_masks(predictions, 1);
    for (const Prediction& one : predictions)
      if (!one.masked) all.push_back({one.position, Kind::kRemask});
    most = std::max(most, state.window_step);
    return all;
  };
  EXPECT_EQ(refused("custom-changes", cycle), "it took 1000 passes over one window");
  EXPECT_EQ(most, kMostPassesOfWindow);
  Script held;
  std::int32_t asked = 0, reviews = 0;
  held.holds = [&](const DecodingState&) { return ++asked > 0; };
  held.decide = [&](const DecodingState&, std::span<const Prediction> predictions) {
    const Decisions all = first_masks(predictions, 8);
    reviews += all.empty() ? 1 : 0;
    return all;
  };
  EXPECT_EQ(refused("custom-changes", held), "it held a window without masks 1000 times");
  EXPECT_EQ(reviews, kMostPassesOfWindow) << "passes count, not questions";
  EXPECT_EQ(asked, kMostPassesOfWindow + 1) << "once per pass";
}

TEST_F(CustomDecoders, WhatTheyDeclareIsChecked) {
  const auto make = [](const OptionMap&) { return std::unique_ptr<CustomDecoder>(); };
  const auto refused = [&](DecoderDeclaration declaration) { return register_custom_decoder(declaration).error(); };
  EXPECT_NE(refused({.name = "threshold", .meaning = "", .make = make}).what.find("already"), std::string::npos);
  EXPECT_EQ(refused({.name = "No Name", .meaning = "", .make = make}).code, ErrorCode::kUsage);
  EXPECT_EQ(refused({.name = "custom-none", .meaning = ""}).what, "the decoder has no factory");
  EXPECT_NE(refused({.name = "custom-none", .meaning = "", .options = {number("block_length", 0.5)}, .make = make})
                .what.find("already"),
            std::string::npos);
  OptionInfo bare = number("custom_bare", 0.5);
  bare.standard.reset();
  EXPECT_EQ(refused({.name = "custom-none", .meaning = "", .options = {bare}, .make = make}).what, "it has no default");
}

}  // namespace
}  // namespace dllm
