#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/lead.h"
#include "base/rng.h"

namespace dllm::test {

/// A backend without a network, for tests of the loop. The prediction of a row is a hash of exactly what a transformer
/// row may depend on (the tokens that its visible cache rows were computed from and, recursively, what those depended
/// on), so two plans agree iff each scored row sees the same in both. It records the plans.
class FakeBackend : public Backend {
 public:
  explicit FakeBackend(ModelDesc desc) : desc_(std::move(desc)) {}

  const ModelDesc& desc() const override { return desc_; }
  bool runs_shadows() const override { return true; }
  bool runs_branches() const override { return true; }
  bool runs_soft_tokens() const override { return true; }
  bool runs_lead() const override { return true; }

  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override {
    return std::unique_ptr<KvCache>(std::make_unique<Cache>(capacity));
  }

  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override {
    std::vector<Scores> all;
    for (const SequenceStep& step : batch) {
      plans.push_back(step.plan);
      if (observe) observe(step);
      all.push_back(run(step));
    }
    return all;
  }

  static void copy_rows(const KvCache& from, KvCache& to, std::span<const Position> positions) {
    std::vector<PlanRow> rows;
    for (Position p : positions) {
      if (!from.holds(p)) continue;
      rows.push_back({p, from.token_of(p)});
      static_cast<Cache&>(to).state[static_cast<std::size_t>(p)] =
          static_cast<const Cache&>(from).state[static_cast<std::size_t>(p)];
    }
    static_cast<Cache&>(to).record(rows);
  }

  std::vector<StepPlan> plans;
  /// Lets a test look at every step.
  std::function<void(const SequenceStep&)> observe;
  /// Lets a test change scores.
  std::function<void(RowScore&)> tamper;
  bool tops = false;  ///< lists of one token are returned
  /// Returns lists of likeliest tokens, all of one length.
  std::function<std::vector<TopToken>(const RowScore&)> list;

 private:
  class Cache : public KvCache {
   public:
    explicit Cache(Position capacity) : KvCache(capacity), state(static_cast<std::size_t>(capacity)) {}
    using KvCache::record;
    std::vector<std::uint64_t> state;  ///< represents K/V of a two-layer model
    std::uint64_t state_of(Position p) const {
      return static_cast<const Cache&>(holder(p)).state[static_cast<std::size_t>(p)];
    }

   protected:
    bool take(const KvCache& branch, std::span<const PositionRange> rows) override {
      for (const PositionRange& range : rows)
        for (Position p = range.begin; p < range.end; ++p)
          state[static_cast<std::size_t>(p)] = static_cast<const Cache&>(branch).state[static_cast<std::size_t>(p)];
      return true;
    }
  };

  static std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
    h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
    h *= 0xff51afd7ed558ccdu;
    return h ^ (h >> 33);
  }

  static bool sees(const StepPlan& plan, Position i, Position j, const ShadowRow* shadow = nullptr) {
    const bool first = leads(plan, j), own = shadow == nullptr && leads(plan, i);
    if (own && !first) return false;
    const bool ordered = first && !own;  // before the row, whatever their positions are
    for (const PositionRange& range : plan.apart)
      if (!ordered && !own && range.contains(i) && !range.contains(j)) return false;
    if (!ordered && plan.causal_block > 0 && j / plan.causal_block > i / plan.causal_block) return false;
    for (const PositionRange& range : shadow ? shadow->visible : plan.visible)
      if (range.contains(j)) return true;
    return false;
  }

  Scores run(const SequenceStep& step) {
    auto& cache = static_cast<Cache&>(*step.cache);
    const StepPlan& plan = step.plan;
    for (std::size_t i = 1; i < plan.rows.size(); ++i)
      if (plan.rows[i - 1].position >= plan.rows[i].position) std::abort();
    cache.record(plan.rows);
    // "Layer 1" keys depend on their own token; "layer 2" on the visible layer-1 keys: stale rows keep theirs.
    std::vector<std::uint64_t> fresh = cache.state;
    for (const PlanRow& row : plan.rows) {
      std::uint64_t h = mix(1, static_cast<std::uint64_t>(row.token));
      for (const RowMixture& mixture : plan.mixtures)
        if (mixture.instead && plan.rows[static_cast<std::size_t>(mixture.row)].position == row.position)
          for (const MixedToken& mixed : mixture.tokens)
            h = mix(h, static_cast<std::uint64_t>(mixed.token) + static_cast<std::uint64_t>(1e6F * mixed.weight));
      for (Position j = 0; j < cache.capacity(); ++j)
        if (sees(plan, row.position, j)) {
          if (!cache.holds(j)) std::abort();
          h = mix(h, static_cast<std::uint64_t>(cache.token_of(j)) * 1000003u + static_cast<std::uint64_t>(j));
        }
      fresh[static_cast<std::size_t>(row.position)] = h;
    }
    cache.state = fresh;
    Scores scores;
    auto query = step.request.queries.begin();
    for (std::int32_t index : plan.scored) {
      const Position p = plan.row(index).position;
      const auto own = static_cast<std::size_t>(index);
      const ShadowRow* const shadow = own < plan.rows.size() ? nullptr : &plan.shadows[own - plan.rows.size()];
      std::uint64_t h = 7;
      for (Position j = 0; j < cache.capacity(); ++j)
        if (sees(plan, p, j, shadow)) {
          if (!cache.holds(j)) std::abort();
          h = mix(h, cache.state_of(j));
        }
      h = mix(h, static_cast<std::uint64_t>(p));
      if (shadow) h = mix(h, static_cast<std::uint64_t>(shadow->row.token));
      RowScore score;
      score.position = p;
      score.token = static_cast<TokenId>(h % 50);
      score.confidence = static_cast<double>((h >> 8) % 100000) / 100000.0 * 0.998 + 0.001;
      score.log_odds = std::log(score.confidence / (1 - score.confidence));
      score.margin = score.confidence;
      score.entropy = 1 - score.confidence;
      score.logit = static_cast<float>((h >> 40) % 100) / 10.f;
      if (tamper) tamper(score);
      for (; query != step.request.queries.end() && static_cast<std::size_t>(query->scored) == scores.rows.size();
           ++query)
        scores.queried.push_back(logit(score, query->token, h));
      scores.rows.push_back(score);
      if (tops) scores.top.push_back({score.token, score.logit});
      if (list) {
        const std::vector<TopToken> listed = list(score);
        scores.top.insert(scores.top.end(), listed.begin(), listed.end());
      }
    }
    return scores;
  }

  /// Confidence of a token when fifty others share the remaining probability.
  static float logit(const RowScore& score, TokenId token, std::uint64_t h) {
    if (token == score.token) return score.logit;
    const double share = (0.5 + static_cast<double>(mix(h, static_cast<std::uint64_t>(token)) % 100) / 200) / 51;
    return score.logit + static_cast<float>(std::log(share) - score.log_odds);
  }

  ModelDesc desc_;
};

}  // namespace dllm::test
