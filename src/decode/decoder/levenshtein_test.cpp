// Edits of length: the canvas's operations, the decoder's decisions against a recorded reference, and the loop.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "decode/testing/random_scores.h"
#include "decode/testing/run_method.h"

namespace dllm {
namespace {

using test::FakeBackend;
using test::LogitRow;
using test::masked_desc;
using test::MethodResult;
using test::MethodRun;
using test::prediction;
using test::reduce;
using test::run_method;

using Tokens = std::vector<TokenId>;

constexpr TokenId kMask = 99;

/// Tokens after the prompt, masks as -1.
Tokens answer(const Canvas& canvas) {
  Tokens result;
  for (Position p = canvas.prompt_end(); p < canvas.size(); ++p)
    result.push_back(canvas.masked(p) ? -1 : canvas.token(p));
  return result;
}

Canvas filled(const Tokens& prompt, const Tokens& tokens) {
  Canvas canvas(prompt, static_cast<Position>(tokens.size()), kMask);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] >= 0) canvas.apply({canvas.prompt_end() + static_cast<Position>(i), tokens[i], EditKind::kCommit, 1});
  return canvas;
}

TEST(CanvasLength, InsertionPushesTheLastOfItsRangeOut) {
  Canvas canvas = filled({1, 2}, {10, 11, -1, 13, 14, 15});
  EXPECT_TRUE(canvas.apply({3, -1, EditKind::kInsert, 1, 6}));
  EXPECT_EQ(answer(canvas), (Tokens{10, -1, 11, -1, 14, 15}));
  EXPECT_EQ(canvas.masked_count(), 2);
  EXPECT_TRUE(canvas.apply({5, -1, EditKind::kInsert, 1, 8}));
  EXPECT_EQ(answer(canvas), (Tokens{10, -1, 11, -1, -1, 14}));
  EXPECT_EQ(canvas.masked_count(), 3);
  EXPECT_EQ(canvas.token(3), kMask);
  EXPECT_EQ(canvas.size(), 8);
}

TEST(CanvasLength, DeletionFillsItsRangeUpWithAMask) {
  Canvas canvas = filled({1, 2}, {10, 11, -1, 13, 14, 15});
  EXPECT_TRUE(canvas.apply({2, -1, EditKind::kDelete, 1, 5}));
  EXPECT_EQ(answer(canvas), (Tokens{11, -1, -1, 13, 14, 15}));
  EXPECT_EQ(canvas.masked_count(), 2);
  EXPECT_TRUE(canvas.apply({7, -1, EditKind::kDelete, 1, 8}));
  EXPECT_EQ(answer(canvas), (Tokens{11, -1, -1, 13, 14, -1}));
  EXPECT_FALSE(canvas.apply({3, -1, EditKind::kDelete, 1, 5})) << "masks shifted onto masks";
  EXPECT_EQ(canvas.masked_count(), 3);
}

/// One pass of a decoder over a window that ends with the canvas; rows are those of the positions after the prompt.
class LevenshteinPasses {
 public:
  LevenshteinPasses(const OptionMap& config, Canvas start, TokenId mask)
      : canvas(std::move(start)),
        mask_(mask),
        delete_(static_cast<TokenId>(test::integer(config, "delete_token"))),
        insert_(static_cast<TokenId>(test::integer(config, "insert_token"))),
        decoder_(test::decoder_of("levenshtein", config)) {}

  Tokens pass(const std::vector<LogitRow>& rows) {
    const std::vector<Position> wanted = decoder_->wanted(context());
    ScoreRequest request;
    decoder_->configure(request);
    std::vector<std::vector<TopToken>> lists;
    std::vector<Candidate> candidates;
    for (Position p : wanted) {
      const LogitRow& z = rows[static_cast<std::size_t>(p - canvas.prompt_end())];
      lists.push_back(best(z, request.top_tokens));
      const bool forbidden = !request.rules.empty();
      const TokenId first = lists.back().front().token;
      // Forbidden tokens count in the softmax but are not chosen.
      candidates.push_back(reduce(p, z, mask_));
      if (forbidden && (first == delete_ || first == insert_ || first == mask_)) {
        for (const TopToken& top : lists.back())
          if (top.token != delete_ && top.token != insert_ && top.token != mask_) {
            candidates.back().token = top.token;
            candidates.back().eligible = false;
            break;
          }
      }
    }
    for (std::size_t i = 0; i < candidates.size(); ++i) candidates[i].top = lists[i];
    for (const Edit& edit : decoder_->decode(context(), candidates)) canvas.apply(edit);
    EXPECT_TRUE(decoder_->keeps_schedule());
    ++step_;
    return answer(canvas);
  }

  bool finished() const { return canvas.masked_count() == 0 && !decoder_->holds_window(context()); }

  Canvas canvas;

 private:
  DecodeContext context() const {
    return {canvas, {0, canvas.size()}, step_, 0, static_cast<std::uint32_t>(step_), {1, 0}};
  }

  static std::vector<TopToken> best(const LogitRow& z, std::int32_t count) {
    std::vector<TopToken> all;
    for (std::size_t t = 0; t < z.size(); ++t) all.push_back({static_cast<TokenId>(t), z[t]});
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.logit > b.logit; });
    all.resize(std::min(all.size(), static_cast<std::size_t>(count)));
    return all;
  }

  TokenId mask_, delete_, insert_;
  std::unique_ptr<Decoder> decoder_;
  std::int32_t step_ = 0;
};

const OptionMap kConfig = {{"threshold", .5}, {"edit_threshold", .5}, {"delete_token", 10}, {"insert_token", 9}};

// Worked by hand.
TEST(Levenshtein, ReferenceVector) {
  LevenshteinPasses passes(kConfig, filled({7}, {1, 2, 3, 4}), kMask);
  EXPECT_EQ(passes.pass({prediction(1, .9), prediction(10, .9), prediction(3, .9), prediction(9, .9)}),
            (Tokens{1, 3, -1, 4}));
  EXPECT_EQ(passes.canvas.token(0), 7) << "the prompt stays";
}

TEST(Levenshtein, FillsOneMaskMoreThanItMakes) {
  OptionMap config = kConfig;
  config["threshold"] = .95;
  LevenshteinPasses passes(config, filled({}, {1, -1, -1, 4}), kMask);
  // Two insertions would need three masks to fill: the less certain one is dropped.
  EXPECT_EQ(passes.pass({prediction(9, .8), prediction(5, .6), prediction(6, .7), prediction(9, .7)}),
            (Tokens{-1, 1, 5, 6}));
}

TEST(Levenshtein, AtTheEndOfTheBudgetMasksAreFilledWithoutEdits) {
  OptionMap config = kConfig;
  config["max_post_steps"] = 2;
  LevenshteinPasses passes(config, filled({}, {1, 2}), kMask);
  const std::vector<LogitRow> grow = {prediction(9, .9), prediction(3, .6)};
  EXPECT_EQ(passes.pass(grow), (Tokens{-1, 1}));
  EXPECT_EQ(passes.pass({prediction(9, .8), prediction(1, .9)}), (Tokens{-1, -1}));
  EXPECT_FALSE(passes.finished());
  EXPECT_EQ(passes.pass({prediction(9, .8), prediction(10, .7)}), (Tokens{0, 0})) << "the second best of each";
  EXPECT_TRUE(passes.finished());
}

TEST(Levenshtein, EqualsTheRecordedDecisions) {
  std::ifstream file(DLLM_SOURCE_DIR "/tests/golden/levenshtein.json");
  const auto golden = nlohmann::json::parse(file);
  const auto vocabulary = golden["vocabulary"].get<std::size_t>();
  const auto mask = golden["mask"].get<TokenId>();
  int made = 0;
  for (const auto& one : golden["cases"]) {
    SCOPED_TRACE(one["seed"].get<int>());
    const OptionMap config = {{"threshold", one["threshold"].get<double>()},
                              {"edit_threshold", one["edit_threshold"].get<double>()},
                              {"max_post_steps", one["max_post_steps"].get<std::int32_t>()},
                              {"delete_token", golden["delete"].get<TokenId>()},
                              {"insert_token", golden["insert"].get<TokenId>()}};
    const auto size = one["size"].get<Position>();
    LevenshteinPasses passes(config, Canvas(Tokens(one["prompt"].get<std::size_t>(), 5), size, mask), mask);
    Position masks = size;
    for (const auto& pass : one["passes"]) {
      ASSERT_FALSE(passes.finished());
      const auto hex = pass["scores"].get<std::string>();
      std::vector<LogitRow> rows(static_cast<std::size_t>(size), LogitRow(vocabulary));
      for (std::size_t i = 0; i < hex.size() / 2; ++i)
        rows[i / vocabulary][i % vocabulary] =
            (static_cast<float>(std::stoi(hex.substr(2 * i, 2), nullptr, 16)) - 128.f) / 16.f;
      ASSERT_EQ(passes.pass(rows), pass["after"].get<Tokens>()) << "pass " << (&pass - &one["passes"][0]);
      made += passes.canvas.masked_count() > masks ? 1 : 0;
      masks = passes.canvas.masked_count();
    }
    EXPECT_TRUE(passes.finished());
  }
  EXPECT_GT(made, 5) << "hardly an edit of length in the cases";
}

MethodRun busy(std::string window, std::string cache) {
  MethodRun run{.window = std::move(window), .cache = std::move(cache), .decoder = "levenshtein"};
  run.config["threshold"] = .6;
  run.config["edit_threshold"] = .6;
  run.config["delete_token"] = 3;
  run.config["insert_token"] = 4;
  return run;
}

/// Every second prediction is an edit of length.
void restless(RowScore& score) {
  const auto h = static_cast<std::uint64_t>(score.confidence * 1e5);
  if (h % 2 == 0) score.token = h % 4 == 0 ? 3 : 4;
}

TEST(Levenshtein, EndsWithinItsBoundUnderEveryWindowAndCache) {
  for (const auto& window : method_names(windows()))
    for (const auto& cache : method_names(caches()))
      for (const std::int32_t budget : {0, 3, 16}) {
        SCOPED_TRACE(window + ' ' + cache + ' ' + std::to_string(budget));
        FakeBackend backend(masked_desc());
        backend.tamper = restless;
        MethodRun run = busy(window, cache);
        run.config["max_post_steps"] = budget;
        const MethodResult result = run_method(backend, run);
        ASSERT_TRUE(result.finished);
        EXPECT_EQ(result.tokens.size(), 29u);
        for (Position p = 0; p < run.prompt; ++p) EXPECT_EQ(result.tokens[static_cast<std::size_t>(p)], p + 1);
        for (TokenId token : result.tokens) EXPECT_NE(token, kMask);
        if (window == "block") {
          EXPECT_LE(result.counters.nfe, 3 * (8 + budget + 1));
        }
      }
}

// K/V of shifted positions are recomputed: an exact cache changes nothing.
TEST(Levenshtein, BlockCausalCacheIsExact) {
  int shifted = 0;
  for (Position prompt = 1; prompt < 12; ++prompt) {
    MethodRun run = busy("block", "none");
    run.prompt = prompt;
    run.grid.origin = BlockOrigin::kAbsolute;
    FakeBackend a(masked_desc(8)), b(masked_desc(8));
    a.tamper = b.tamper = restless;
    const MethodResult plain = run_method(a, run);
    run.cache = "block-causal";
    const MethodResult cached = run_method(b, run);
    ASSERT_TRUE(plain.finished && cached.finished);
    EXPECT_EQ(cached.tokens, plain.tokens);
    EXPECT_EQ(cached.commit_pass, plain.commit_pass);
    EXPECT_LT(cached.counters.rows_forwarded, plain.counters.rows_forwarded);
    for (const DenoiseStep& step : plain.steps)
      for (const Edit& edit : step.edits) {
        shifted += shifts(edit.kind) ? 1 : 0;
        if (shifts(edit.kind)) {
          EXPECT_EQ(edit.end, step.window.end);
        }
        EXPECT_TRUE(step.window.contains(edit.position));
      }
  }
  EXPECT_GT(shifted, 20);
}

TEST(Levenshtein, WithoutEditTokensItFillsAsDraftEditDoes) {
  MethodRun run = busy("block", "none");
  run.config.erase("delete_token");
  run.config.erase("insert_token");
  run.config["edit_threshold"] = 2;
  FakeBackend a(masked_desc()), b(masked_desc());
  const MethodResult ours = run_method(a, run);
  run.decoder = "draft-edit";
  const MethodResult theirs = run_method(b, run);
  EXPECT_EQ(ours.tokens, theirs.tokens);
  EXPECT_EQ(ours.commit_pass, theirs.commit_pass);
  EXPECT_EQ(ours.counters.nfe, theirs.counters.nfe);
}

}  // namespace
}  // namespace dllm
