#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <string_view>
#include <utility>
#include <vector>

#include "base/types.h"
#include "constrain/dfa.h"
#include "dllm/error.h"

namespace dllm::constrain {

/// An automaton over tokens: which sequences spell an accepted text, then end with stop tokens or with the canvas.
///
/// Tokens that lead every state to the same place share a class, so that the vocabulary need not be searched: 126 000
/// tokens have some hundred classes. A token is a function from states to states, and the functions of its prefixes are
/// looked up byte by byte (the automaton's transition monoid, as far as the vocabulary reaches it).
class TokenAutomaton {
 public:
  static constexpr std::int32_t kDead = -1;
  static constexpr std::int32_t kNoClass = 0;  ///< of tokens that no state allows

  /// `tokens`: their bytes by id; empty ones are never allowed. `stops`: ids that end the text; only stop tokens follow
  /// them. Errors: kUsage (too complex), kCancelled (`stop`).
  static Expected<TokenAutomaton> build(const Dfa& dfa, std::span<const std::string_view> tokens,
                                        std::span<const TokenId> stops, const std::stop_token& stop = {});

  /// What a text does in a state. Counts: see Dfa::most.
  struct Transition {
    static constexpr std::int16_t kGoesOn = -1;
    std::int32_t from = 0, to = 0;
    std::int16_t more = 0;         ///< is added to the count in `from`, which may then not exceed its bound
    std::int16_t count = kGoesOn;  ///< in `to`, if its counter has begun anew; else the count in `from` goes on
    friend bool operator==(const Transition&, const Transition&) = default;
  };
  /// By ascending `from`; states that are not listed have no successor.
  using Function = std::vector<Transition>;

  /// What tokens of a class do in a state.
  struct Move {
    std::int32_t token_class = kNoClass;
    std::int32_t to = 0;
    std::int16_t more = 0, count = Transition::kGoesOn;  ///< as Transition's
  };

  std::int32_t states() const { return static_cast<std::int32_t>(accepting_.size()); }
  std::int32_t start() const { return 0; }
  /// Whether the text may end here: it matches, or a stop token has ended it.
  bool accepts(std::int32_t state) const { return accepting_[static_cast<std::size_t>(state)] != 0; }
  std::int32_t classes() const { return classes_; }
  std::span<const std::int32_t> class_of() const { return class_of_; }  ///< by token
  std::span<const Move> moves(std::int32_t state) const;                ///< by ascending class
  /// The states after one token, whichever.
  std::span<const std::int32_t> successors(std::int32_t state) const;
  static constexpr std::int32_t kUnreachable = -1;
  /// The fewest tokens after which a state accepts, or kUnreachable.
  std::int32_t fewest_tokens(std::int32_t state) const { return fewest_[static_cast<std::size_t>(state)]; }
  /// Whether what can end in n tokens can in n + 1, as with stop tokens: every accepting state has such a successor.
  bool goes_on_accepting() const { return goes_on_accepting_; }
  std::int32_t next(std::int32_t state, TokenId token) const;
  /// nullptr: the token is not allowed.
  const Move* move(std::int32_t state, TokenId token) const;

  /// Whether a sequence must be followed with a count: then a way through the states is accepted only if no count
  /// exceeds its bound. Every state whose count does not can go on to the end without counting more, but for texts that
  /// must fill a given number of tokens.
  bool counts() const { return counts_; }
  static constexpr std::int32_t kTooMany = Dfa::kTooMany;
  /// The count after a move from a state, or kTooMany. 0 in states that count nothing.
  std::int32_t count_after(std::int32_t state, const Move& move, std::int32_t count) const;

 private:
  void set_bounds(const Dfa& dfa);
  void set_moves(const std::vector<const Function*>& classes);
  void set_successors();
  void set_fewest();

  std::int32_t classes_ = 1;
  bool counts_ = false;
  bool goes_on_accepting_ = true;
  std::vector<std::uint8_t> accepting_;
  std::vector<std::int32_t> bounds_;  ///< by state; kTooMany: it counts nothing
  std::vector<std::int32_t> class_of_;
  std::vector<Move> moves_;
  std::vector<std::size_t> first_move_;  ///< by state, and the end
  std::vector<std::int32_t> successors_;
  std::vector<std::size_t> first_successor_;
  std::vector<std::int32_t> fewest_;  ///< by state
};

}  // namespace dllm::constrain
