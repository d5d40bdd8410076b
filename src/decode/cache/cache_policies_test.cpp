// Each policy against an independent reference, which sees only the canvas before every pass and keeps its own record
// of what was forwarded when.
#include "decode/cache/cache_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "decode/testing/run_method.h"

namespace dllm {
namespace {

using test::FakeBackend;
using test::masked_desc;
using test::MethodResult;
using test::MethodRun;
using test::run_method;

/// What a reference records: the tokens and passes of each position's last forwards.
struct Books {
  std::vector<TokenId> forwarded_token;           ///< -1: never forwarded
  std::vector<std::int32_t> forwards_with_token;  ///< consecutive, with that token
  std::vector<std::int32_t> last_pass;            ///< of a forward
  std::int32_t pass = 0;                          ///< about to be made
  std::int32_t last_full = -1;
  std::vector<TokenId> shown;              ///< tokens in the pass before
  std::vector<std::int32_t> changed_pass;  ///< first pass that showed the current token
};

using Rule = std::function<std::set<Position>(const CacheContext&, Books&)>;

/// Recomputes the rows chosen by `rule`, with everything visible.
class Reference : public CachePolicy {
 public:
  explicit Reference(Rule rule) : rule_(std::move(rule)) {}

  CacheDecision decide(const CacheContext& context) override {
    const auto size = static_cast<std::size_t>(context.canvas.size());
    books_.forwarded_token.resize(size, -1);
    books_.forwards_with_token.resize(size, 0);
    books_.last_pass.resize(size, -1);
    books_.shown.resize(size, -1);
    books_.changed_pass.resize(size, 0);
    for (std::size_t i = 0; i < size; ++i) {
      const TokenId token = context.canvas.token(static_cast<Position>(i));
      if (books_.shown[i] != token) books_.changed_pass[i] = books_.pass;
      books_.shown[i] = token;
    }
    std::set<Position> rows = rule_(context, books_);
    rows.insert(context.wanted.begin(), context.wanted.end());
    for (Position p : rows) {
      const auto i = static_cast<std::size_t>(p);
      const bool same = books_.forwarded_token[i] == context.canvas.token(p);
      books_.forwards_with_token[i] = same ? books_.forwards_with_token[i] + 1 : 1;
      books_.forwarded_token[i] = context.canvas.token(p);
      books_.last_pass[i] = books_.pass;
    }
    ++books_.pass;
    return {{rows.begin(), rows.end()}, {{0, context.horizon}}};
  }

 private:
  Rule rule_;
  Books books_;
};

std::set<Position> range(Position begin, Position end) {
  std::set<Position> result;
  for (Position p = begin; p < end; ++p) result.insert(p);
  return result;
}

bool stale(const CacheContext& context, const Books& books, Position p) {
  return books.forwarded_token[static_cast<std::size_t>(p)] != context.canvas.token(p);
}

void add_stale_in_front(const CacheContext& context, const Books& books, Position end, std::set<Position>& rows) {
  for (Position p = 0; p < end; ++p)
    if (stale(context, books, p)) rows.insert(p);
}

/// The options that the rules use.
struct PolicyOptions {
  bool refresh_on_unit = true;
  std::int32_t refresh_interval = 0;  ///< 0: none
  Position prefix_look = 16, after_look = 16;
  std::int32_t cache_warmup = 4, cache_delay = 1, prompt_interval = 50, response_interval = 7;
  double refresh_share = 0.25, refresh_entropy = 1;
  std::int32_t recent_rows = 8;

  OptionMap map() const {
    OptionMap all{{"refresh", refresh_on_unit ? "block" : "once"},
                  {"prefix_look", prefix_look},
                  {"after_look", after_look},
                  {"cache_warmup", cache_warmup},
                  {"cache_delay", cache_delay},
                  {"prompt_interval", prompt_interval},
                  {"response_interval", response_interval},
                  {"refresh_share", refresh_share},
                  {"refresh_entropy", refresh_entropy},
                  {"recent_rows", recent_rows}};
    if (refresh_interval > 0) all["refresh_interval"] = refresh_interval;
    return all;
  }
};

/// First pass, first pass of a unit, and every `interval` passes.
bool full_pass(const CacheContext& context, Books& books, const PolicyOptions& config) {
  const bool full = books.last_full < 0 || (config.refresh_on_unit && context.window_changed) ||
                    (config.refresh_interval > 0 && books.pass - books.last_full >= config.refresh_interval);
  if (full) books.last_full = books.pass;
  return full;
}

Rule dual_rule(PolicyOptions config) {
  return [config](const CacheContext& context, Books& books) {
    if (full_pass(context, books, config)) return range(0, context.horizon);
    std::set<Position> rows = range(context.needed.begin, context.needed.end);
    add_stale_in_front(context, books, context.needed.begin, rows);
    return rows;
  };
}

Rule prefix_rule(PolicyOptions config) {
  return [config](const CacheContext& context, Books& books) {
    if (full_pass(context, books, config)) return range(0, context.horizon);
    std::set<Position> rows = range(context.needed.begin, context.horizon);
    add_stale_in_front(context, books, context.needed.begin, rows);
    return rows;
  };
}

Rule vicinity_rule(PolicyOptions config) {
  return [config](const CacheContext& context, Books& books) {
    if (full_pass(context, books, config) || books.pass < config.cache_warmup) return range(0, context.horizon);
    const Position begin = std::max(0, context.needed.begin - config.prefix_look);
    std::set<Position> rows = range(begin, std::min(context.horizon, context.needed.end + config.after_look));
    add_stale_in_front(context, books, begin, rows);
    return rows;
  };
}

Rule delayed_rule(PolicyOptions config, bool greedy, bool keep_prompt) {
  return [=](const CacheContext& context, Books& books) {
    const bool first = books.last_full < 0;
    if (first || (config.refresh_interval > 0 && books.pass - books.last_full >= config.refresh_interval)) {
      books.last_full = books.pass;
      return range(!first && keep_prompt ? context.canvas.prompt_end() : 0, context.horizon);
    }
    std::set<Position> rows;
    for (Position p = context.canvas.prompt_end(); p < context.horizon; ++p) {
      const bool settled = !context.canvas.masked(p) && !stale(context, books, p) &&
                           books.forwards_with_token[static_cast<std::size_t>(p)] >= config.cache_delay;
      if (settled || (greedy && context.canvas.masked(p) && !context.needed.contains(p))) continue;
      rows.insert(p);
    }
    return rows;
  };
}

Rule partial_rule(PolicyOptions config) {
  return [config](const CacheContext& context, Books& books) {
    const Position prompt = context.canvas.prompt_end();
    std::set<Position> rows;
    if (books.pass % config.prompt_interval == 0) rows = range(0, prompt);
    if (books.pass % config.response_interval == 0) {
      rows.merge(range(prompt, context.horizon));
      return rows;
    }
    std::set<Position> must(context.wanted.begin(), context.wanted.end());
    for (Position p = prompt; p < context.horizon; ++p)
      if (stale(context, books, p)) must.insert(p);
    std::set<std::pair<double, Position>> ranked;  // by descending drift, then position
    for (Position p = prompt; p < context.horizon; ++p) {
      double drift = 0;
      for (Position q = 0; q < context.canvas.size(); ++q)
        if (books.changed_pass[static_cast<std::size_t>(q)] > books.last_pass[static_cast<std::size_t>(p)])
          drift += 1.0 / (1.0 + std::abs(q - p));
      if (drift > 0 && !must.contains(p)) ranked.insert({-drift, p});
    }
    auto share = static_cast<std::size_t>(config.refresh_share * (context.horizon - prompt));
    for (const auto& [drift, p] : ranked)
      if (share-- > 0)
        must.insert(p);
      else
        break;
    rows.merge(must);
    return rows;
  };
}

/// What the last pass committed, and in which order tokens came, it tells from the tokens that passes show.
Rule entropy_rule(PolicyOptions config) {
  return [config](const CacheContext& context, Books& books) {
    std::int32_t recent = config.recent_rows;
    std::set<std::pair<std::int32_t, Position>> tokens;  // latest first
    double largest = 0;
    for (Position p = context.canvas.prompt_end(); p < context.canvas.size(); ++p) {
      if (context.canvas.masked(p)) continue;
      const std::int32_t changed = books.changed_pass[static_cast<std::size_t>(p)];
      if (p < context.horizon) tokens.insert({-changed, p});
      for (const Candidate& candidate : context.predicted)
        if (candidate.position == p && changed == books.pass) largest = std::max(largest, candidate.entropy);
    }
    if (books.pass == 0 || largest > config.refresh_entropy) return range(0, context.horizon);
    std::set<Position> rows;
    add_stale_in_front(context, books, context.horizon, rows);
    for (auto next = tokens.begin(); next != tokens.end() && recent-- > 0; ++next) rows.insert(next->second);
    return rows;
  };
}

/// A policy without a case here has no reference; it still takes part in the identities below and in the combinations
/// of denoiser_test.cpp.
struct PolicyCase {
  std::string name;
  PolicyOptions config;
  Rule rule;
};

std::vector<PolicyCase> policy_cases() {
  std::vector<PolicyCase> cases;
  for (const bool on_unit : {true, false})
    for (const std::int32_t interval : {0, 3}) {
      PolicyOptions config;
      config.refresh_on_unit = on_unit;
      config.refresh_interval = interval;
      config.prefix_look = 3;
      config.after_look = 5;
      config.cache_warmup = 2;
      cases.push_back({"dual", config, dual_rule(config)});
      cases.push_back({"prefix", config, prefix_rule(config)});
      cases.push_back({"vicinity", config, vicinity_rule(config)});
    }
  for (const std::int32_t interval : {0, 4})
    for (const std::int32_t delay : {1, 3}) {
      PolicyOptions config;
      config.refresh_interval = interval;
      config.cache_delay = delay;
      cases.push_back({"delayed", config, delayed_rule(config, false, false)});
      cases.push_back({"delayed-greedy", config, delayed_rule(config, true, false)});
      cases.push_back({"delayed-pd", config, delayed_rule(config, false, true)});
    }
  for (const double share : {0.0, 0.25, 1.0}) {
    PolicyOptions config;
    config.prompt_interval = 5;
    config.response_interval = 3;
    config.refresh_share = share;
    cases.push_back({"partial", config, partial_rule(config)});
  }
  for (const double entropy : {0.05, 0.3, 2.0})
    for (const std::int32_t recent : {0, 3}) {
      PolicyOptions config;
      config.refresh_entropy = entropy;
      config.recent_rows = recent;
      cases.push_back({"entropy", config, entropy_rule(config)});
    }
  return cases;
}

// Every policy under every window, with the decoders in rotation.
TEST(CachePolicyReferences, RowsAndTokensAreTheReferences) {
  const auto decoder_names = method_names(decoders());
  std::size_t next = 0;
  for (const auto& window : method_names(windows()))
    for (const PolicyCase& policy : policy_cases())
      for (int share = 0; share < 3; ++share)
        for (const Position prompt : {1, 13}) {
          const std::string& decoder = decoder_names[next++ / 2 % decoder_names.size()];
          SCOPED_TRACE(policy.name + ' ' + window + ' ' + decoder + " prompt " + std::to_string(prompt));
          if (traits_of(decoders(), {decoder, {}}).soft) continue;  // the references keep every row
          MethodRun run{.window = window, .cache = policy.name, .decoder = decoder};
          run.cache_config = policy.config.map();
          run.prompt = prompt;
          FakeBackend ours(masked_desc()), theirs(masked_desc());
          const MethodResult a = run_method(ours, run);
          const MethodResult b = run_method(theirs, run, std::make_unique<Reference>(policy.rule));
          ASSERT_TRUE(a.finished && b.finished);
          EXPECT_EQ(a.tokens, b.tokens);
          EXPECT_EQ(a.commit_pass, b.commit_pass);
          ASSERT_EQ(ours.plans.size(), theirs.plans.size());
          for (std::size_t i = 0; i < ours.plans.size(); ++i) {
            ASSERT_EQ(ours.plans[i].rows, theirs.plans[i].rows) << "pass " << i;
            ASSERT_EQ(ours.plans[i].visible, theirs.plans[i].visible);
          }
        }
}

// A cache that is refreshed in every pass equals no cache.
TEST(CachePolicyIdentities, FullRefreshInEveryPassIsNoCache) {
  std::vector<MethodRun> runs;
  for (const CacheEntry& policy : caches()) {
    if (policy.option("refresh_interval") == nullptr) continue;
    if (policy.info.name == "delayed-pd") continue;  // its full passes leave out the prompt
    MethodRun run{.cache = policy.info.name};
    run.cache_config["refresh_interval"] = 1;
    runs.push_back(run);
  }
  MethodRun warm{.cache = "vicinity"}, wide{.cache = "vicinity"}, partial{.cache = "partial"}, sure{.cache = "entropy"};
  warm.cache_config["cache_warmup"] = 1000;
  wide.cache_config["prefix_look"] = wide.cache_config["after_look"] = 1000;
  partial.cache_config["prompt_interval"] = partial.cache_config["response_interval"] = 1;
  sure.cache_config["refresh_entropy"] = 0;  // every pass commits something that was not certain
  runs.insert(runs.end(), {warm, wide, partial, sure});
  for (const auto& window : method_names(windows()))
    for (MethodRun run : runs) {
      run.window = window;
      FakeBackend cached(masked_desc()), plain(masked_desc());
      const MethodResult ours = run_method(cached, run);
      run.cache = "none";
      const MethodResult full = run_method(plain, run);
      EXPECT_EQ(ours.tokens, full.tokens) << window << ' ' << run.cache;
      EXPECT_EQ(ours.commit_pass, full.commit_pass);
      EXPECT_EQ(ours.counters.rows_forwarded, full.counters.rows_forwarded);
    }
}

TEST(CachePolicyIdentities, VicinityWithoutNeighboursIsDual) {
  MethodRun run{.cache = "vicinity"};
  run.cache_config["prefix_look"] = run.cache_config["after_look"] = run.cache_config["cache_warmup"] = 0;
  FakeBackend a(masked_desc()), b(masked_desc());
  const MethodResult vicinity = run_method(a, run);
  run.cache = "dual";
  const MethodResult dual = run_method(b, run);
  EXPECT_EQ(vicinity.tokens, dual.tokens);
  EXPECT_EQ(vicinity.counters.rows_forwarded, dual.counters.rows_forwarded);
}

// Upstream's warm-up passes fill no cache. In the block where they end a full pass follows, and, except in the first
// block, another one after a pass of the window.
TEST(CachePolicyIdentities, VicinityFillsAfterItsWarmUpUnderCompat) {
  const auto rows = [](std::int32_t warmup, bool compat) {
    FakeBackend backend(masked_desc());
    MethodRun run{.cache = "vicinity", .decoder = "low-confidence"};
    run.config["steps"] = std::int64_t{24};
    run.cache_config = {
        {"prefix_look", std::int64_t{1}}, {"after_look", std::int64_t{1}}, {"cache_warmup", std::int64_t{warmup}}};
    run.grid.compat = compat;
    EXPECT_TRUE(run_method(backend, run).finished);
    std::string shape;
    for (const StepPlan& plan : backend.plans) shape += plan.rows.size() == 29 ? 'F' : '-';
    return shape;
  };
  EXPECT_EQ(rows(0, false), "F-------F-------F-------");
  EXPECT_EQ(rows(0, true), "F-------F-------F-------");
  EXPECT_EQ(rows(2, false), "FF------F-------F-------");
  EXPECT_EQ(rows(2, true), "FFF-----F-------F-------");
  EXPECT_EQ(rows(8, true), "FFFFFFFFF-F-----F-------");
  EXPECT_EQ(rows(11, true), "FFFFFFFFFFFF-F--F-------");
  EXPECT_EQ(rows(15, true), "FFFFFFFFFFFFFFFFF-------");
}

// The fake's predictions depend on every token and every stale row they see.
TEST(CachePolicyIdentities, BlockCausalIsExactUnderEveryWindow) {
  const LatencyTable latency({{1, 1}, {8, 1.2}, {16, 3}, {64, 12}}, 0);
  for (const auto& window : method_names(windows()))
    for (const std::int32_t block : {1, 4, 8})
      for (const Position prompt : {1, 5, 13})
        for (const std::int32_t settle : {0, 1})
          for (const bool show : {false, true})
            for (const char* objective : {"allowance", "rate"}) {
              SCOPED_TRACE(window + " block " + std::to_string(block) + " prompt " + std::to_string(prompt));
              MethodRun run{.window = window};
              run.grid = {BlockOrigin::kAbsolute, 8, &latency, 24};
              run.window_config = {
                  {"objective", objective}, {"allowance", 0.5}, {"draft_threshold", 0.5}, {"show_drafts", show}};
              run.prompt = prompt;
              run.config["threshold"] = 0.6;
              FakeBackend a(masked_desc(block)), b(masked_desc(block));
              const MethodResult uncached = run_method(a, run);
              run.cache = "block-causal";
              if (settle > 0) run.cache_config["settle"] = settle;
              const MethodResult cached = run_method(b, run);
              ASSERT_TRUE(cached.finished);
              EXPECT_EQ(cached.tokens, uncached.tokens);
              EXPECT_EQ(cached.commit_pass, uncached.commit_pass);
            }
}

// dInfer's cross-block update: the final tokens of a block are forwarded together with the next block, so no pass is
// needed for the cache alone.
TEST(CachePolicyIdentities, BlockCausalUpdatesAcrossBlocksInOnePass) {
  FakeBackend backend(masked_desc(8));
  MethodRun run{.cache = "block-causal", .decoder = "low-confidence"};
  run.prompt = 8;
  run.grid.origin = BlockOrigin::kAbsolute;
  const MethodResult result = run_method(backend, run);
  EXPECT_EQ(result.counters.nfe, 24) << "one pass per token";
  EXPECT_EQ(backend.plans[0].rows.size(), 16u) << "prompt and first block";
  EXPECT_EQ(backend.plans[1].rows.size(), 8u);
  EXPECT_EQ(backend.plans[8].rows.size(), 16u) << "first block's final tokens, second block";
  EXPECT_EQ(backend.plans[9].rows.size(), 8u);
}

}  // namespace
}  // namespace dllm
