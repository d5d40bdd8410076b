#include "cpu/reduction.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "base/to_size.h"

namespace dllm::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// top_p and min_p rarely keep more tokens; if they do, the head runs again for that row.
constexpr std::int64_t kKeptList = 256;

/// Adds the terms of a tail and of its maximum, which is at distance d (<= 0) from `to`'s: sum e^(d + d_i) = e^d (1 +
/// rest), and the weighted sum of (d + d_i) e^(d + d_i) = e^d (weighted + d (1 + rest)).
void add_shifted(const Tail& from, double d, Tail& to) {
  if (!(d > kLeastExponent)) return;
  const double e = std::exp(d), mass = 1 + from.rest;
  to.rest += e * mass;
  to.weighted += e * (from.weighted + d * mass);
}

void offer(Partial::Choice& best, TokenId token, float logit, double key) {
  if (best.token == kNoToken || key > best.key || (key == best.key && token < best.token)) best = {token, logit, key};
}

double key_of(const ReductionSpec& spec, Position position, TokenId token, float logit) {
  const ScoreRequest& r = spec.request;
  return static_cast<double>(logit) / r.temperature + gumbel(r.rng, RngPurpose::kToken, r.step_at(position),
                                                             static_cast<std::uint32_t>(position + r.draw_ahead),
                                                             static_cast<std::uint32_t>(token));
}

/// Whether the keys of a scan include the noise: with filters only the few kept tokens draw, at the end.
bool draws_in_scan(const ReductionSpec& spec) { return spec.draws && spec.kept.all(); }

/// Largest and second largest of a chunk without rules. Removes the largest from `z` by setting it to NaN.
void find_top(const KernelSet& kernels, TokenId first, std::span<float> z, Partial& out) {
  const auto n = static_cast<std::int64_t>(z.size());
  for (TopToken* place : {&out.top, &out.second}) {
    const std::int64_t i = kernels.arg_max(z.data(), n);
    if (i < 0) return;
    float& logit = z[to_size(i)];
    *place = {first + static_cast<TokenId>(i), logit};
    if (place == &out.top) logit = std::numeric_limits<float>::quiet_NaN();
  }
}

/// The sums over a chunk whose largest logit has been removed (NaN).
void sum_tail(const KernelSet& kernels, std::span<const float> z, float top, double beta, Tail& tail) {
  if (std::isfinite(top)) {
    double sums[2];
    kernels.exp_sums(z.data(), static_cast<std::int64_t>(z.size()), top, beta, sums);
    tail = {sums[0], sums[1]};
    return;
  }
  // Infinite logits are at distance 0 from each other; all others are infinitely far away.
  tail.rest = static_cast<double>(std::count(z.begin(), z.end(), top));
}

void draw(const KernelSet& kernels, const ReductionSpec& spec, Position position, TokenId first,
          std::span<const float> z, Partial& out) {
  // The arg-max first: its key excludes the many tokens that even the largest noise could not raise above it.
  offer(out.chosen, out.top.token, out.top.logit, key_of(spec, position, out.top.token, out.top.logit));
  const ScoreRequest& r = spec.request;
  const DrawArgs args{.logits = z.data(),
                      .count = static_cast<std::int64_t>(z.size()),
                      .inverse_temperature = spec.kept.inverse_temperature(),
                      .seed = r.rng.seed,
                      .first_token = static_cast<std::uint32_t>(first),
                      .position = static_cast<std::uint32_t>(position + r.draw_ahead),
                      .step = r.step_at(position),
                      .stream = rng_stream(r.rng, RngPurpose::kToken)};
  for (std::int64_t i = 0;; ++i) {
    // The kernel bounds keys with different rounding. A key that is not finite bounds nothing: all tokens are examined.
    const double best = out.chosen.key;
    i = kernels.next_draw(args, i, best - 1e-12 * (std::abs(best) + 64));
    if (i == args.count) return;
    const float logit = z[to_size(i)];
    if (std::isnan(logit)) continue;
    const TokenId token = first + static_cast<TokenId>(i);
    offer(out.chosen, token, logit, key_of(spec, position, token, logit));
  }
}

void add_ruled(const ReductionSpec& spec, Position position, const TokenRule& rule, float logit, Partial& out) {
  if (std::isnan(logit) || (!rule.choose && !rule.count)) return;
  Partial one;
  if (rule.count) one.top = {rule.token, logit};
  const double key = draws_in_scan(spec) ? key_of(spec, position, rule.token, logit) : static_cast<double>(logit);
  offer(one.winner, rule.token, logit, key);
  if (rule.choose) one.chosen = one.winner;
  merge(spec, one, out);
}

/// The distribution of `sum` as confidence, log-odds, margin and entropy.
void describe_row(const Partial& all, double beta, const Tail& tail, bool possible, RowScore& score) {
  score.log_odds = -kInfinity;
  if (all.top.token == kNoToken) return;
  const double total = 1 + tail.rest;
  // H = ln S - (1/S) sum d e^d, both terms >= 0.
  score.entropy = std::log(total) - tail.weighted / total;
  score.margin = 1 / total;
  if (all.second.token != kNoToken)
    score.margin = -std::expm1(logit_distance(all.second.logit, all.top.logit, beta)) / total;
  if (!possible) return;
  if (score.token == all.top.token) {
    score.confidence = 1 / total;
    score.log_odds = -std::log(tail.rest);
    return;
  }
  const double d = logit_distance(all.chosen.logit, all.top.logit, beta);
  const double e = std::exp(d);
  score.confidence = e / total;
  score.log_odds = d - std::log1p(std::max(0.0, tail.rest - e));
}

const TokenRule* find_rule(const ReductionSpec& spec, TokenId token) {
  for (const TokenRule& rule : spec.request.rules)
    if (rule.token == token) return &rule;
  return nullptr;
}

bool is_counted(const ReductionSpec& spec, TokenId token) {
  const TokenRule* rule = find_rule(spec, token);
  return rule == nullptr || rule->count;
}

}  // namespace

ReductionSpec::ReductionSpec(const ScoreRequest& from, std::int64_t vocab)
    : request(from), draws(from.temperature > 0), kept(from, vocab) {
  std::vector<TokenRule>& rules = request.rules;
  std::stable_sort(rules.begin(), rules.end(),
                   [](const TokenRule& a, const TokenRule& b) { return a.token < b.token; });
  std::vector<TokenRule> merged;
  std::int64_t uncounted = 0;
  for (const TokenRule& rule : rules) {
    if (merged.empty() || merged.back().token != rule.token) merged.push_back({rule.token, true, true});
    merged.back().choose &= rule.choose;
    merged.back().count &= rule.count;
  }
  for (const TokenRule& rule : merged) uncounted += rule.count ? 0 : 1;
  rules = std::move(merged);

  beta[0] = request.distribution == ScoreDistribution::kRaw ? 1 : kept.inverse_temperature();
  if (kept.needs_mass() && beta[0] != kept.inverse_temperature()) {
    beta[1] = kept.inverse_temperature();
    sums = 2;
    mass_sum = 1;
  }
  if (!kept.all()) list = (kept.is_limited() ? kept.limit() : kKeptList) + uncounted;
  list = std::min(vocab, std::max<std::int64_t>(list, request.top_tokens));
}

void merge(const ReductionSpec& spec, const Partial& b, Partial& a) {
  if (b.chosen.token != kNoToken) offer(a.chosen, b.chosen.token, b.chosen.logit, b.chosen.key);
  if (b.winner.token != kNoToken) offer(a.winner, b.winner.token, b.winner.logit, b.winner.key);
  if (b.top.token == kNoToken) return;
  if (a.top.token == kNoToken) {
    a.top = b.top;
    a.second = b.second;
    std::copy(b.tail, b.tail + 2, a.tail);
    return;
  }
  const bool a_leads = better(a.top, b.top);
  const Partial& low = a_leads ? b : a;
  Partial high = a_leads ? a : b;
  for (int s = 0; s < spec.sums; ++s)
    add_shifted(low.tail[s], logit_distance(low.top.logit, high.top.logit, spec.beta[s]), high.tail[s]);
  if (high.second.token == kNoToken || better(low.top, high.second)) high.second = low.top;
  a.top = high.top;
  a.second = high.second;
  std::copy(high.tail, high.tail + 2, a.tail);
}

Partial reduce_chunk(const KernelSet& kernels, const ReductionSpec& spec, Position position, TokenId first,
                     std::span<float> z) {
  const TokenId end = first + static_cast<TokenId>(z.size());
  // Tokens with rules are removed from the loops (NaN) and added one by one at the end.
  std::vector<TokenRule>::const_iterator rule = spec.request.rules.begin(), last = spec.request.rules.end();
  while (rule != last && rule->token < first) ++rule;
  float saved[kChunkRules];
  int count = 0;
  const auto ruled = rule;
  for (; rule != last && rule->token < end && count < kChunkRules; ++rule, ++count) {
    float& logit = z[to_size(rule->token - first)];
    saved[count] = logit;
    logit = std::numeric_limits<float>::quiet_NaN();
  }
  if (rule != last && rule->token < end) {
    // More rules than fit: split the chunk at the next one.
    const auto cut = to_size(rule->token - first);
    for (int i = 0; i < count; ++i) z[to_size(ruled[i].token - first)] = saved[i];
    Partial all = reduce_chunk(kernels, spec, position, first, z.first(cut));
    merge(spec, reduce_chunk(kernels, spec, position, rule->token, z.subspan(cut)), all);
    return all;
  }

  Partial all;
  find_top(kernels, first, z, all);
  if (all.top.token != kNoToken) {
    for (int t = 0; t < spec.sums; ++t) sum_tail(kernels, z, all.top.logit, spec.beta[t], all.tail[t]);
    if (draws_in_scan(spec)) {
      draw(kernels, spec, position, first, z, all);
    } else {
      offer(all.chosen, all.top.token, all.top.logit, static_cast<double>(all.top.logit));
    }
    all.winner = all.chosen;
  }
  for (int i = 0; i < count; ++i) add_ruled(spec, position, ruled[i], saved[i], all);
  return all;
}

Partial add_rules(const ReductionSpec& spec, Position position, TokenId first, TokenId end, const ReducedChunk& chunk,
                  std::span<const float> ruled) {
  Partial all;
  if (chunk.top.token != kNoToken) {
    all.top = chunk.top;
    all.second = chunk.second;
    all.tail[0] = chunk.tail;
    offer(all.chosen, all.top.token, all.top.logit, static_cast<double>(all.top.logit));
    all.winner = all.chosen;
  }
  const std::vector<TokenRule>& rules = spec.request.rules;
  for (std::size_t i = 0; i < rules.size(); ++i)
    if (rules[i].token >= first && rules[i].token < end) add_ruled(spec, position, rules[i], ruled[i], all);
  return all;
}

void TopList::offer(const KernelSet& kernels, TokenId first, std::span<const float> z) {
  auto size = static_cast<std::int64_t>(*size_);
  const auto count = static_cast<std::int64_t>(z.size());
  for (std::int64_t i = 0; i < count; ++i) {
    // Once the list is full, only logits that reach its worst entry are examined.
    if (size == capacity_) i = kernels.find_at_least(z.data(), i, count, storage_[0].logit);
    if (i == count) break;
    const TopToken here{first + static_cast<TokenId>(i), z[to_size(i)]};
    if (std::isnan(here.logit)) continue;
    if (size == capacity_) {
      if (!better(here, storage_[0])) continue;
      std::pop_heap(storage_, storage_ + size, better);
      --size;
    }
    storage_[size++] = here;
    std::push_heap(storage_, storage_ + size, better);
  }
  *size_ = static_cast<std::int32_t>(size);
}

double kept_mass(const ReductionSpec& spec, const Partial& all) { return 1 + all.tail[spec.mass_sum].rest; }

RowScore finish(const ReductionSpec& spec, Position position, const Partial& all) {
  RowScore score;
  score.position = position;
  score.token = all.chosen.token;
  score.logit = all.chosen.logit;
  score.overruled = all.winner.token != all.chosen.token;
  const bool possible = score.token != kNoToken && is_counted(spec, score.token);
  describe_row(all, spec.beta[0], all.tail[0], possible, score);
  return score;
}

RowScore finish_filtered(const ReductionSpec& spec, Position position, const Partial& all,
                         std::span<const TopToken> kept) {
  Partial::Choice chosen, winner;
  for (const TopToken& token : kept) {
    const double key = spec.draws ? key_of(spec, position, token.token, token.logit) : static_cast<double>(token.logit);
    offer(winner, token.token, token.logit, key);
    const TokenRule* rule = find_rule(spec, token.token);
    if (rule == nullptr || rule->choose) offer(chosen, token.token, token.logit, key);
  }
  // At T = 0 the arg-max needs no filter (and may be a token that is not counted). If no kept token may be chosen, a
  // draw falls back to the scan, whose key is the logit.
  const bool drawn = spec.draws && chosen.token != kNoToken;
  Partial result = all;
  if (drawn) result.chosen = chosen;
  RowScore score;
  score.position = position;
  score.token = result.chosen.token;
  score.logit = result.chosen.logit;
  score.overruled =
      spec.draws ? winner.token != kNoToken && winner.token != score.token : all.winner.token != all.chosen.token;
  bool possible = score.token != kNoToken && is_counted(spec, score.token);
  if (spec.request.distribution == ScoreDistribution::kRaw) {
    describe_row(result, spec.beta[0], all.tail[0], possible, score);
    return score;
  }
  Tail tail;
  result.second = kept.size() > 1 ? kept[1] : TopToken{kNoToken, kMinusInfinity};
  for (std::size_t i = 1; i < kept.size(); ++i)
    add_shifted({}, logit_distance(kept[i].logit, all.top.logit, spec.beta[0]), tail);
  possible = possible &&
             std::any_of(kept.begin(), kept.end(), [&](const TopToken& token) { return token.token == score.token; });
  describe_row(result, spec.beta[0], tail, possible, score);
  return score;
}

}  // namespace dllm::cpu
