#include "constrain/counted_path.h"

#include <algorithm>
#include <cmath>

namespace dllm::constrain {
namespace {

/// To one state at one slot; fewer where a long canvas meets a large automaton, whose ways take 24 bytes each.
constexpr std::int64_t kMostWays = 32, kMostOfAll = 4'000'000;

std::size_t most_ways(std::int64_t states, std::size_t slots) {
  return static_cast<std::size_t>(std::clamp<std::int64_t>(
      kMostOfAll / std::max<std::int64_t>(1, states * static_cast<std::int64_t>(slots)), 1, kMostWays));
}

/// The least count after any move between two states; kTooMany: there is none.
std::int32_t least_count(const TokenAutomaton& automaton, std::int32_t from, std::int32_t to, std::int32_t count) {
  std::int32_t least = TokenAutomaton::kTooMany;
  for (const TokenAutomaton::Move& move : automaton.moves(from)) {
    if (move.to != to) continue;
    const std::int32_t after = automaton.count_after(from, move, count);
    if (after != TokenAutomaton::kTooMany && (least == TokenAutomaton::kTooMany || after < least)) least = after;
  }
  return least;
}

/// A way to a state at a slot.
struct Way {
  std::int32_t state = 0, count = 0;
  double score = 0;
  std::int32_t before = 0;       ///< index into the ways one slot before
  std::int32_t token_class = 0;  ///< of the slot's token
};

/// The ways to the states of one slot, none of which is at least as good and short as another to its state.
class Ways {
 public:
  Ways(std::int32_t states, std::size_t most) : most_(most), of_state_(static_cast<std::size_t>(states)) {}

  void offer(const Way& way) {
    if (!std::isfinite(way.score)) return;
    std::vector<Way>& known = of_state_[static_cast<std::size_t>(way.state)];
    for (const Way& one : known)
      if (one.count <= way.count && one.score >= way.score) return;
    if (known.empty()) touched_.push_back(way.state);
    std::erase_if(known, [&](const Way& one) { return one.count >= way.count && one.score <= way.score; });
    known.push_back(way);
    if (known.size() <= most_) return;
    // The shortest must stay, as it can always be completed, and the best if two may. The longest but one goes.
    std::ranges::sort(known, {}, &Way::count);
    known.erase(known.end() - (most_ > 1 ? 2 : 1));
  }

  std::vector<Way> take() {
    std::vector<Way> all;
    for (const std::int32_t state : touched_) {
      std::vector<Way>& known = of_state_[static_cast<std::size_t>(state)];
      all.insert(all.end(), known.begin(), known.end());
      known.clear();
    }
    touched_.clear();
    return all;
  }

 private:
  const std::size_t most_;
  std::vector<std::vector<Way>> of_state_;
  std::vector<std::int32_t> touched_;
};

}  // namespace

std::int32_t count_after_slot(const TokenAutomaton& automaton, std::int32_t from, std::int32_t to, TokenId token,
                              std::int32_t count) {
  if (token == Slot::kNone) return least_count(automaton, from, to, count);
  const TokenAutomaton::Move* const move = automaton.move(from, token);
  return move == nullptr ? TokenAutomaton::kTooMany : automaton.count_after(from, *move, count);
}

bool counts_fit(const TokenAutomaton& automaton, std::span<const Slot> slots, std::span<const std::int32_t> states,
                std::span<const TokenId> tokens) {
  std::int32_t count = 0;
  for (std::size_t i = 0; i < slots.size() && count != TokenAutomaton::kTooMany; ++i) {
    const TokenId token = slots[i].token != Slot::kNone ? slots[i].token : tokens[i];
    count = count_after_slot(automaton, states[i], states[i + 1], token, count);
  }
  return count != TokenAutomaton::kTooMany;
}

std::optional<std::vector<TokenId>> best_counted(const TokenAutomaton& automaton, std::span<const Slot> slots,
                                                 const ClassWeights& weights,
                                                 const std::function<bool(std::int32_t)>& can_end) {
  std::vector<std::vector<Way>> ways = {{{.state = automaton.start()}}};
  Ways layer(automaton.states(), most_ways(automaton.states(), slots.size()));
  for (const Slot& slot : slots) {
    const std::vector<Way>& before = ways.back();
    const bool scored = slot.token == Slot::kNone && slot.row != Slot::kNone;
    const std::span<const float> row = scored ? weights.row(slot.row) : std::span<const float>();
    for (std::size_t i = 0; i < before.size(); ++i) {
      const Way& from = before[i];
      const auto offer = [&](const TokenAutomaton::Move& move) {
        const std::int32_t count = automaton.count_after(from.state, move, from.count);
        if (count == TokenAutomaton::kTooMany) return;
        const double more = scored ? static_cast<double>(row[static_cast<std::size_t>(move.token_class)]) : 0;
        layer.offer({move.to, count, from.score + more, static_cast<std::int32_t>(i), move.token_class});
      };
      if (slot.token != Slot::kNone) {
        if (const TokenAutomaton::Move* const move = automaton.move(from.state, slot.token)) offer(*move);
      } else {
        std::ranges::for_each(automaton.moves(from.state), offer);
      }
    }
    ways.push_back(layer.take());
  }
  const Way* best = nullptr;
  for (const Way& way : ways.back())
    if ((best == nullptr || way.score > best->score) && can_end(way.state)) best = &way;
  if (best == nullptr) return std::nullopt;
  std::vector<TokenId> tokens(slots.size(), Slot::kNone);
  for (std::size_t i = slots.size(); i-- > 0; best = &ways[i][static_cast<std::size_t>(best->before)])
    if (slots[i].row != Slot::kNone && slots[i].token == Slot::kNone)
      tokens[i] = weights.token(slots[i].row, best->token_class);
  return tokens;
}

}  // namespace dllm::constrain
