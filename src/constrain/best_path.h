#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"
#include "constrain/token_automaton.h"

namespace dllm::constrain {

/// What is known of a position.
struct Slot {
  static constexpr std::int32_t kNone = -1;
  TokenId token = kNone;     ///< given: no other is possible
  std::int32_t row = kNone;  ///< not given: its row of weights; kNone: any token, and all are alike
};

/// The largest logit of each class of tokens, for the rows of a pass.
class ClassWeights {
 public:
  explicit ClassWeights(const TokenAutomaton& automaton) : automaton_(automaton) {}

  /// Adds the logits of a row, by token. Ties: the lower id wins.
  void add(std::span<const float> logits);
  void clear() { weights_.clear(), tokens_.clear(); }

  /// By class; minus infinity: no token of the class has a logit above it.
  std::span<const float> row(std::int32_t row) const {
    return std::span(weights_).subspan(slot(row, 0), static_cast<std::size_t>(automaton_.classes()));
  }
  TokenId token(std::int32_t row, std::int32_t token_class) const { return tokens_[slot(row, token_class)]; }

 private:
  std::size_t slot(std::int32_t row, std::int32_t token_class) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(automaton_.classes()) +
           static_cast<std::size_t>(token_class);
  }
  const TokenAutomaton& automaton_;
  std::vector<float> weights_;
  std::vector<TokenId> tokens_;
};

/// Finds the most probable completion that an automaton accepts, by dynamic programming over (position, state): DINGO
/// (arXiv 2505.23061), over classes of tokens instead of tokens. For one sequence.
class PathFinder {
 public:
  explicit PathFinder(const TokenAutomaton& automaton) : automaton_(automaton) {}

  /// The tokens of all slots with a row, -1 for the others, whose sum of weights is the largest among the sequences
  /// that hold the given tokens and are accepted; `after` more tokens follow the slots, whichever. nullopt: there is
  /// none.
  std::optional<std::vector<TokenId>> best(std::span<const Slot> slots, const ClassWeights& weights,
                                           std::int32_t after);

  /// Whether some sequence of exactly so many tokens is accepted; stop tokens after the first one count.
  bool fits(std::int32_t tokens) { return can_end(automaton_.start(), tokens); }
  /// The fewest tokens of an accepted sequence; nullopt: more than `most`.
  std::optional<std::int32_t> fewest_tokens(std::int32_t most) const;
  /// Whether a state accepts after exactly `count` more tokens.
  bool can_end(std::int32_t state, std::int32_t count);

 private:
  const TokenAutomaton& automaton_;
  /// [count][state], unless what can end in n tokens can in n + 1; grows on demand, until it repeats.
  std::vector<std::vector<std::uint8_t>> endings_;
  bool complete_ = false;
};

}  // namespace dllm::constrain
