#include "constrain/path_draw.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/to_size.h"
#include "constrain/counted_path.h"

namespace dllm::constrain {
namespace {

constexpr double kNoWay = -std::numeric_limits<double>::infinity();
/// Terms this far below the largest one change no sum of float64.
constexpr double kNegligible = 45;
constexpr std::uint32_t kAttempts = 16;

struct WeightedToken {
  TokenId token = 0;
  double weight = 0;  ///< first its logarithm, then relative to the largest
};

/// ln of the sum of e^x. The largest is found first, so that most exponentials are never taken.
double log_sum(std::span<const double> terms) {
  const double top = terms.empty() ? kNoWay : *std::ranges::max_element(terms);
  if (!std::isfinite(top)) return top;
  double sum = 0;
  for (const double term : terms)
    if (term > top - kNegligible) sum += std::exp(term - top);
  return top + std::log(sum);
}

/// ln of the sum of e^(z/T) over the tokens of each class; minus infinity: it has none.
std::vector<double> class_sums(const TokenAutomaton& automaton, std::span<const float> logits, double temperature) {
  const std::span<const std::int32_t> class_of = automaton.class_of();
  const std::size_t count = std::min(logits.size(), class_of.size());
  std::vector<double> top(to_size(automaton.classes()), kNoWay), sum(top.size(), 0);
  for (std::size_t t = 0; t < count; ++t) {
    double& most = top[to_size(class_of[t])];
    if (static_cast<double>(logits[t]) > most) most = static_cast<double>(logits[t]);
  }
  for (std::size_t t = 0; t < count; ++t) {
    const auto c = to_size(class_of[t]);
    const double distance = (static_cast<double>(logits[t]) - top[c]) / temperature;
    if (distance > -kNegligible) sum[c] += std::exp(distance);
  }
  for (std::size_t c = 0; c < top.size(); ++c)
    if (std::isfinite(top[c])) top[c] = top[c] / temperature + std::log(sum[c]);
  return top;
}

/// Leaves what the filters keep.
void keep_likeliest(std::vector<WeightedToken>& tokens, const PathDrawer::Rule& rule) {
  if (!rule.keep) return;
  std::ranges::sort(tokens, [](const WeightedToken& a, const WeightedToken& b) {
    return a.weight > b.weight || (a.weight == b.weight && a.token < b.token);
  });
  std::vector<double> weights;
  for (const WeightedToken& one : tokens) weights.push_back(one.weight);
  tokens.resize(rule.keep(weights));
}

TokenId pick(std::span<const WeightedToken> tokens, double uniform) {
  double all = 0, before = 0;
  for (const WeightedToken& one : tokens) all += one.weight;
  for (const WeightedToken& one : tokens) {
    before += one.weight;
    if (before > uniform * all) return one.token;
  }
  return tokens.back().token;
}

}  // namespace

/// The states before each slot, and after the last, that the given tokens allow from the start on.
std::vector<std::vector<std::int32_t>> PathDrawer::reached(std::span<const Slot> slots) const {
  std::vector<std::vector<std::int32_t>> all = {{automaton_.start()}};
  std::vector<std::uint8_t> seen(to_size(automaton_.states()), 0);
  for (const Slot& slot : slots) {
    std::vector<std::int32_t> next;
    const auto add = [&](std::int32_t state) {
      if (std::exchange(seen[to_size(state)], std::uint8_t{1}) == 0) next.push_back(state);
    };
    for (const std::int32_t state : all.back()) {
      if (slot.token == Slot::kNone) {
        for (const std::int32_t to : automaton_.successors(state)) add(to);
      } else if (const std::int32_t to = automaton_.next(state, slot.token); to != TokenAutomaton::kDead) {
        add(to);
      }
    }
    for (const std::int32_t state : next) seen[to_size(state)] = 0;
    all.push_back(std::move(next));
  }
  return all;
}

PathDrawer::Sums PathDrawer::before(const Slot& slot, std::span<const float> logits,
                                    std::span<const std::int32_t> states, const Sums& sums, double temperature) const {
  const auto sum_at = [&sums](std::int32_t state) { return sums[to_size(state)]; };
  Sums result(sums.size(), kNoWay);
  const bool drawn = slot.token == Slot::kNone && slot.row != Slot::kNone;
  const std::vector<double> classes = drawn ? class_sums(automaton_, logits, temperature) : std::vector<double>();
  std::vector<double> terms;
  for (const std::int32_t state : states) {
    double& sum = result[to_size(state)];
    if (drawn) {
      terms.clear();
      for (const TokenAutomaton::Move& move : automaton_.moves(state))
        terms.push_back(classes[to_size(move.token_class)] + sum_at(move.to));
      sum = log_sum(terms);
    } else if (slot.token == Slot::kNone) {
      for (const std::int32_t to : automaton_.successors(state)) sum = std::max(sum, sum_at(to));
    } else if (const std::int32_t to = automaton_.next(state, slot.token); to != TokenAutomaton::kDead) {
      sum = sum_at(to);
    }
  }
  return result;
}

TokenId PathDrawer::draw_token(std::int32_t state, std::span<const float> logits, const Sums& sums, const Rule& rule,
                               double uniform) const {
  std::vector<double> way(to_size(automaton_.classes()), kNoWay);
  for (const TokenAutomaton::Move& move : automaton_.moves(state))
    way[to_size(move.token_class)] = sums[to_size(move.to)];
  const std::span<const std::int32_t> class_of = automaton_.class_of();
  const std::size_t count = std::min(logits.size(), class_of.size());
  const auto weight_of = [&](std::size_t t) {
    return static_cast<double>(logits[t]) / rule.temperature + way[to_size(class_of[t])];
  };
  double top = kNoWay;
  for (std::size_t t = 0; t < count; ++t)
    if (const double weight = weight_of(t); weight > top) top = weight;
  std::vector<WeightedToken> tokens;
  for (std::size_t t = 0; t < count; ++t)
    if (const double weight = weight_of(t); weight > top - kNegligible)
      tokens.push_back({static_cast<TokenId>(t), std::exp(weight - top)});
  keep_likeliest(tokens, rule);
  return pick(tokens, uniform);
}

std::int32_t PathDrawer::likeliest_successor(std::int32_t state, const Sums& sums) const {
  return *std::ranges::max_element(automaton_.successors(state), {},
                                   [&sums](std::int32_t to) { return sums[to_size(to)]; });
}

std::optional<std::vector<TokenId>> PathDrawer::draw(std::span<const Slot> slots,
                                                     std::span<const std::span<const float>> rows, std::int32_t after,
                                                     const Rule& rule, const Uniform& uniform) {
  const auto logits_of = [&rows](const Slot& slot) {
    return slot.row == Slot::kNone ? std::span<const float>() : rows[to_size(slot.row)];
  };
  const std::vector<std::vector<std::int32_t>> states = reached(slots);
  std::vector<Sums> sums(slots.size() + 1);
  sums.back().assign(to_size(automaton_.states()), kNoWay);
  for (const std::int32_t state : states.back())
    if (finder_.can_end(state, after)) sums.back()[to_size(state)] = 0;
  for (std::size_t i = slots.size(); i-- > 0;)
    sums[i] = before(slots[i], logits_of(slots[i]), states[i], sums[i + 1], rule.temperature);
  if (!std::isfinite(sums[0][to_size(automaton_.start())])) return std::nullopt;
  for (std::uint32_t attempt = 0; attempt < kAttempts; ++attempt) {
    std::vector<TokenId> tokens(slots.size(), Slot::kNone);
    std::int32_t state = automaton_.start(), count = 0;
    for (std::size_t i = 0; i < slots.size() && count != TokenAutomaton::kTooMany; ++i) {
      const Slot& slot = slots[i];
      const bool free = slot.token == Slot::kNone && slot.row == Slot::kNone;
      if (slot.token == Slot::kNone && !free)
        tokens[i] = draw_token(state, logits_of(slot), sums[i + 1], rule, uniform(i, attempt));
      const TokenId token = slot.token == Slot::kNone ? tokens[i] : slot.token;
      const std::int32_t to = free ? likeliest_successor(state, sums[i + 1]) : automaton_.next(state, token);
      // A draw that exceeds a bound is not finished: models that write long texts would pay for all of them.
      if (automaton_.counts()) count = count_after_slot(automaton_, state, to, token, count);
      state = to;
    }
    if (count != TokenAutomaton::kTooMany) return tokens;
  }
  ClassWeights weights(automaton_);
  for (const std::span<const float> logits : rows) weights.add(logits);
  return finder_.best(slots, weights, after);
}

}  // namespace dllm::constrain
