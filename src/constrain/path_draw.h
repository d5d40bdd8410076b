#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"
#include "constrain/best_path.h"
#include "constrain/token_automaton.h"

namespace dllm::constrain {

/// Draws a completion that an automaton accepts. For one sequence.
///
/// Positions are independent given the pass's logits z, so that an accepted completion x has the probability
/// prod_i exp(z_i[x_i] / T) / Z, where Z sums over the accepted ones only. Sums over suffixes by (position, state),
/// from the last position to the first, give the probability of each token after those that were drawn before it: a
/// draw from left to right that never leads into a dead end. The filters apply to these probabilities, so that they
/// keep at least one token. Draws in which a count exceeds its bound are rejected; after a few of them the most
/// probable completion is taken.
class PathDrawer {
 public:
  using Uniform = std::function<double(std::size_t slot, std::uint32_t attempt)>;
  struct Rule {
    double temperature = 1;  ///< above 0
    /// How many of the allowed tokens the filters of sampling keep, at least one. `weights`: their probabilities times
    /// any factor, in descending order. Null: all are kept.
    std::function<std::size_t(std::span<const double> weights)> keep = {};
  };

  /// `finder` is borrowed, and says what can still end.
  PathDrawer(const TokenAutomaton& automaton, PathFinder& finder) : automaton_(automaton), finder_(finder) {}

  /// The tokens of all slots with a row, -1 for the others. `rows`: logits by Slot::row; NaN: not that token. `after`
  /// more tokens follow the slots. At a slot without row and token, the likeliest way on is taken. `uniform`: a number
  /// in (0, 1) by slot and attempt. nullopt: no completion is accepted, or a logit is infinite.
  std::optional<std::vector<TokenId>> draw(std::span<const Slot> slots, std::span<const std::span<const float>> rows,
                                           std::int32_t after, const Rule& rule, const Uniform& uniform);

 private:
  /// By state: the logarithm of the sum over accepted completions from a slot on; minus infinity: there is none.
  using Sums = std::vector<double>;

  std::vector<std::vector<std::int32_t>> reached(std::span<const Slot> slots) const;
  Sums before(const Slot& slot, std::span<const float> logits, std::span<const std::int32_t> states, const Sums& sums,
              double temperature) const;
  TokenId draw_token(std::int32_t state, std::span<const float> logits, const Sums& sums, const Rule& rule,
                     double uniform) const;
  std::int32_t likeliest_successor(std::int32_t state, const Sums& sums) const;

  const TokenAutomaton& automaton_;
  PathFinder& finder_;
};

}  // namespace dllm::constrain
