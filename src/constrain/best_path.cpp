#include "constrain/best_path.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/to_size.h"
#include "constrain/counted_path.h"

namespace dllm::constrain {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// How a state was reached first by the best way.
struct Arrival {
  std::int32_t state = 0;
  std::int32_t from = 0;         ///< index into the arrivals one slot before
  std::int32_t token_class = 0;  ///< of the slot's token
};

/// The best ways to the states of one slot.
class Layer {
 public:
  explicit Layer(std::int32_t states) : score_(to_size(states), kNever), place_(score_.size(), -1) {}

  void offer(std::int32_t state, double score, std::int32_t from, std::int32_t token_class) {
    const auto s = to_size(state);
    if (!(score > score_[s])) return;
    score_[s] = score;
    if (place_[s] < 0) {
      place_[s] = static_cast<std::int32_t>(arrivals.size());
      arrivals.push_back({state, 0, 0});
    }
    arrivals[to_size(place_[s])] = {state, from, token_class};
  }
  double score(std::int32_t state) const { return score_[to_size(state)]; }
  /// Empty, for another slot.
  void reset() {
    for (const Arrival& one : arrivals) {
      score_[to_size(one.state)] = kNever;
      place_[to_size(one.state)] = -1;
    }
    arrivals.clear();
  }

  std::vector<Arrival> arrivals;

 private:
  std::vector<double> score_;
  std::vector<std::int32_t> place_;
};

}  // namespace

void ClassWeights::add(std::span<const float> logits) {
  const std::size_t first = weights_.size(), classes = to_size(automaton_.classes());
  weights_.resize(first + classes, -std::numeric_limits<float>::infinity());
  tokens_.resize(first + classes, -1);
  const std::span<const std::int32_t> class_of = automaton_.class_of();
  float* const weight = weights_.data() + first;
  TokenId* const token = tokens_.data() + first;
  const std::size_t count = std::min(logits.size(), class_of.size());
  for (std::size_t t = 0; t < count; ++t) {
    const auto c = to_size(class_of[t]);
    if (!(logits[t] > weight[c])) continue;
    weight[c] = logits[t];
    token[c] = static_cast<TokenId>(t);
  }
}

bool PathFinder::can_end(std::int32_t state, std::int32_t count) {
  if (automaton_.goes_on_accepting()) {
    const std::int32_t fewest = automaton_.fewest_tokens(state);
    return fewest != TokenAutomaton::kUnreachable && fewest <= count;
  }
  const std::int32_t states = automaton_.states();
  while (!complete_ && static_cast<std::int32_t>(endings_.size()) <= count) {
    std::vector<std::uint8_t> next(to_size(states), 0);
    for (std::int32_t s = 0; s < states; ++s) {
      std::uint8_t& can = next[to_size(s)];
      if (endings_.empty()) {
        can = automaton_.accepts(s) ? 1 : 0;
      } else {
        for (const std::int32_t to : automaton_.successors(s))
          if (endings_.back()[to_size(to)] != 0) can = 1;
      }
    }
    complete_ = !endings_.empty() && next == endings_.back();
    if (!complete_) endings_.push_back(std::move(next));
  }
  const auto row = std::min(to_size(count), endings_.size() - 1);
  return endings_[row][to_size(state)] != 0;
}

std::optional<std::int32_t> PathFinder::fewest_tokens(std::int32_t most) const {
  const std::int32_t fewest = automaton_.fewest_tokens(automaton_.start());
  return fewest != TokenAutomaton::kUnreachable && fewest <= most ? std::optional(fewest) : std::nullopt;
}

std::optional<std::vector<TokenId>> PathFinder::best(std::span<const Slot> slots, const ClassWeights& weights,
                                                     std::int32_t after) {
  std::vector<std::vector<Arrival>> arrivals = {{{automaton_.start(), 0, 0}}};
  std::vector<double> scores = {0};  // of the last arrivals
  Layer layer(automaton_.states());
  for (const Slot& slot : slots) {
    layer.reset();
    const std::vector<Arrival>& before = arrivals.back();
    for (std::size_t i = 0; i < before.size(); ++i) {
      const auto from = static_cast<std::int32_t>(i);
      if (slot.token != Slot::kNone) {
        const std::int32_t to = automaton_.next(before[i].state, slot.token);
        if (to != TokenAutomaton::kDead) layer.offer(to, scores[i], from, 0);
      } else if (slot.row == Slot::kNone) {
        for (const std::int32_t to : automaton_.successors(before[i].state)) layer.offer(to, scores[i], from, 0);
      } else {
        const std::span<const float> row = weights.row(slot.row);
        for (const TokenAutomaton::Move& move : automaton_.moves(before[i].state))
          layer.offer(move.to, scores[i] + row[to_size(move.token_class)], from, move.token_class);
      }
    }
    arrivals.push_back(layer.arrivals);
    scores.clear();
    for (const Arrival& one : layer.arrivals) scores.push_back(layer.score(one.state));
  }
  std::int32_t best = -1;
  for (std::size_t i = 0; i < scores.size(); ++i)
    if ((best < 0 || scores[i] > scores[to_size(best)]) && can_end(arrivals.back()[i].state, after))
      best = static_cast<std::int32_t>(i);
  if (best < 0) return std::nullopt;
  std::vector<TokenId> tokens(slots.size(), Slot::kNone);
  std::vector<std::int32_t> states(slots.size() + 1, automaton_.start());
  for (std::size_t i = slots.size(); i-- > 0;) {
    const Arrival& one = arrivals[i + 1][to_size(best)];
    states[i + 1] = one.state;
    if (slots[i].row != Slot::kNone && slots[i].token == Slot::kNone)
      tokens[i] = weights.token(slots[i].row, one.token_class);
    best = one.from;
  }
  // The best way of all is nearly always within its bounds, and then the best of those that are.
  if (!automaton_.counts() || counts_fit(automaton_, slots, states, tokens)) return tokens;
  return best_counted(automaton_, slots, weights, [&](std::int32_t state) { return can_end(state, after); });
}

}  // namespace dllm::constrain
