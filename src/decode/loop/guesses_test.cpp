// Guessed passes in the loop: the answer, its caches and its counted steps are those of the rule that is guessed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "decode/testing/run_method.h"

namespace dllm {
namespace {

using test::FakeBackend;
using test::masked_desc;
using test::MethodResult;
using test::MethodRun;

/// Predictions that mostly depend on the position alone, so that some guesses are right and some are wrong.
void steady(RowScore& score) {
  const auto changes = static_cast<std::int32_t>(score.confidence * 1000) % 5 == 0;
  if (changes) return;
  const Position p = score.position;
  score.token = (p * 13 + 5) % 48;
  score.confidence = 0.3 + static_cast<double>((p * 29) % 37) / 60;
  score.log_odds = std::log(score.confidence / (1 - score.confidence));
}

struct GuessedRun {
  std::vector<TokenId> tokens;
  DenoiseCounters counters;
  std::vector<std::vector<TokenId>> cached;  ///< tokens of the cache's rows, and the passes that wrote them
  std::size_t most = 0;                      ///< steps of a pass
  std::vector<Edit> edits;
};

GuessedRun run_passes(const MethodRun& run, const ModelDesc& desc, std::int32_t branches,
                      const std::function<void(RowScore&)>& tamper = steady) {
  FakeBackend backend(desc);
  backend.tamper = tamper;
  Canvas canvas = test::canvas_of(run, desc);
  const auto cache = *backend.make_cache(canvas.size());
  std::vector<std::unique_ptr<KvCache>> owned;
  DenoiseOptions options = run.options;
  for (std::int32_t i = 0; i < branches; ++i) {
    owned.push_back(*backend.make_cache(canvas.size()));
    options.branches.push_back(owned.back().get());
  }
  Denoiser denoiser(desc, std::move(canvas), test::method_of(run), options, *cache, nullptr);
  GuessedRun result;
  for (auto batch = denoiser.prepare(); !batch.empty(); batch = denoiser.prepare()) {
    result.most = std::max(result.most, batch.size());
    for (const SequenceStep& step : batch) EXPECT_FALSE(step.plan.scored.empty()) << "a pass that predicts nothing";
    const auto step = denoiser.absorb(*backend.forward(batch));
    if (!step || denoiser.counters().nfe > 300) {
      ADD_FAILURE();
      break;
    }
    result.edits.insert(result.edits.end(), step->edits.begin(), step->edits.end());
  }
  for (Position p = 0; p < denoiser.canvas().size(); ++p) {
    result.tokens.push_back(denoiser.canvas().token(p));
    result.cached.push_back(
        {cache->token_of(p), static_cast<TokenId>(cache->epoch_of(p)), static_cast<TokenId>(cache->same_since(p))});
  }
  result.counters = denoiser.counters();
  return result;
}

MethodRun rule_run(const std::string& rule, const std::string& window, const std::string& cache) {
  MethodRun plain{.window = window, .cache = cache, .decoder = rule};
  plain.config["threshold"] = 0.85;
  plain.config["steps"] = std::int64_t{18};
  plain.cache_config["refresh_interval"] = std::int64_t{3};
  return plain;
}
MethodRun guessed_run(const MethodRun& plain, std::int32_t drafts) {
  MethodRun freedave = plain;
  freedave.decoder = "freedave";
  freedave.config["rule"] = plain.decoder;
  freedave.config["drafts"] = std::int64_t{drafts};
  freedave.config.erase(plain.decoder == "threshold" ? "steps" : "threshold");
  return freedave;
}

TEST(Guesses, ChangeNothingButTheNumberOfPasses) {
  std::int32_t saved = 0, refused = 0;
  for (const char* rule : {"low-confidence", "threshold"})
    for (const auto& window : method_names(windows()))
      for (const auto& cache : method_names(caches()))
        for (const std::int32_t shift : {0, 1}) {
          SCOPED_TRACE(std::string(rule) + ' ' + window + ' ' + cache + " shift " + std::to_string(shift));
          if (!test::suits(**find_method(caches(), cache), masked_desc())) continue;
          const MethodRun plain = rule_run(rule, window, cache);
          const GuessedRun expected = run_passes(plain, masked_desc(0, shift), 0);
          for (const std::int32_t drafts : {1, 3}) {
            const GuessedRun actual = run_passes(guessed_run(plain, drafts), masked_desc(0, shift), drafts);
            EXPECT_EQ(actual.tokens, expected.tokens);
            EXPECT_EQ(actual.cached, expected.cached);
            EXPECT_EQ(actual.counters.steps, expected.counters.steps);
            EXPECT_LE(actual.counters.nfe, expected.counters.nfe);
            EXPECT_LE(actual.most, static_cast<std::size_t>(drafts) + 1);
            ASSERT_EQ(actual.edits.size(), expected.edits.size());
            for (std::size_t i = 0; i < actual.edits.size(); ++i) {
              EXPECT_EQ(actual.edits[i].position, expected.edits[i].position);
              EXPECT_EQ(actual.edits[i].confidence, expected.edits[i].confidence);
            }
            const std::int32_t passes = expected.counters.nfe - actual.counters.nfe;
            saved += passes;
            refused += actual.counters.rows_forwarded > expected.counters.rows_forwarded ? 1 : 0;
          }
        }
  EXPECT_GT(saved, 200);
  EXPECT_GT(refused, 20) << "guesses that are wrong cost rows";
}

TEST(Guesses, OfBlockCausalModels) {
  MethodRun plain = rule_run("low-confidence", "block", "block-causal");
  const GuessedRun expected = run_passes(plain, masked_desc(8), 0),
                   actual = run_passes(guessed_run(plain, 3), masked_desc(8), 3);
  EXPECT_EQ(actual.tokens, expected.tokens);
  EXPECT_EQ(actual.cached, expected.cached);
  EXPECT_LT(actual.counters.nfe, expected.counters.nfe);
}

/// Predictions of the position alone.
void fixed(RowScore& score) {
  score.token = score.position % 40;
  score.confidence = 0.2 + static_cast<double>(score.position % 11) / 20;
  score.log_odds = std::log(score.confidence / (1 - score.confidence));
}

/// Passes that keep the prediction of the window's first position forward one row less, and so do their guesses.
TEST(Guesses, OfPassesThatKeepTheFront) {
  for (const char* cache : {"prefix", "dual"})
    for (const std::int32_t drafts : {1, 3}) {
      SCOPED_TRACE(std::string(cache) + ' ' + std::to_string(drafts));
      MethodRun plain = rule_run("low-confidence", "block", cache);
      plain.cache_config["keep_front"] = true;
      const GuessedRun expected = run_passes(plain, masked_desc(0, 1), 0),
                       actual = run_passes(guessed_run(plain, drafts), masked_desc(0, 1), drafts);
      EXPECT_EQ(actual.tokens, expected.tokens);
      EXPECT_EQ(actual.cached, expected.cached);
      EXPECT_EQ(actual.counters.steps, expected.counters.steps);
      EXPECT_LT(actual.counters.nfe, expected.counters.nfe);
    }
}

/// Passes after one that keeps a prediction have other rows than those before: to guess them would cost rows only.
TEST(Guesses, NoneFromPassesThatKeepTheFront) {
  for (const char* window : {"adaptive", "pipeline"})
    for (const char* cache : {"prefix", "dual"}) {
      SCOPED_TRACE(std::string(window) + ' ' + cache);
      MethodRun plain = rule_run("low-confidence", window, cache);
      plain.cache_config["keep_front"] = true;
      const GuessedRun expected = run_passes(plain, masked_desc(0, 1), 0, fixed),
                       actual = run_passes(guessed_run(plain, 3), masked_desc(0, 1), 3, fixed);
      EXPECT_LT(actual.counters.nfe, expected.counters.nfe);
      EXPECT_LT(5 * actual.counters.rows_forwarded, 6 * expected.counters.rows_forwarded);
    }
}

TEST(Guesses, WithDrawsAndStopTokens) {
  for (const bool stops : {false, true}) {
    MethodRun plain = rule_run("low-confidence", "block", "dual");
    plain.options.sampling.temperature = 0.7;
    plain.options.stop_ids = {18};  // of position 1
    plain.options.exact_length = !stops;
    const GuessedRun expected = run_passes(plain, masked_desc(), 0),
                     actual = run_passes(guessed_run(plain, 2), masked_desc(), 2);
    EXPECT_EQ(actual.tokens, expected.tokens);
    EXPECT_LT(actual.counters.nfe, expected.counters.nfe);
  }
}

/// All of a block but its first pass, and its last ones, which are one pass and nothing left to guess. 18 steps commit
/// two positions in a block's first two passes, one in the four after them.
TEST(Guesses, AreRightIfPredictionsStay) {
  for (const std::int64_t steps : {24, 18})
    for (const bool keep_front : {false, true})
      for (const char* cache : {"prefix", "dual"}) {
        SCOPED_TRACE(std::to_string(steps) + ' ' + cache + (keep_front ? " keep_front" : ""));
        MethodRun plain{.cache = cache, .decoder = "low-confidence", .config = {{"steps", steps}}};
        if (keep_front) plain.cache_config["keep_front"] = true;
        const ModelDesc desc = masked_desc(0, keep_front ? 1 : 0);
        const GuessedRun expected = run_passes(plain, desc, 0, fixed);
        EXPECT_EQ(expected.counters.nfe, steps);
        const GuessedRun actual = run_passes(guessed_run(plain, 3), desc, 3, fixed);
        EXPECT_EQ(actual.tokens, expected.tokens);
        EXPECT_EQ(actual.counters.nfe, 3 * 3) << "1 + 4 + 3 or 1 passes per block of 8";
        EXPECT_EQ(actual.counters.steps, steps);
        EXPECT_EQ(actual.counters.rows_forwarded, expected.counters.rows_forwarded);
      }
}

}  // namespace
}  // namespace dllm
