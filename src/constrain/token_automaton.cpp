#include "constrain/token_automaton.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "base/to_size.h"
#include "base/try.h"

namespace dllm::constrain {
namespace {

/// Of all functions together: 96 MB. The time is about proportional to them, so that this bounds it as well.
constexpr std::size_t kMostPairs = 8'000'000;
constexpr std::int32_t kMostInToken = 30'000;  ///< counted in one token

using Function = TokenAutomaton::Function;

struct FunctionHash {
  std::size_t operator()(const Function& function) const {
    std::uint64_t hash = function.size();
    for (const TokenAutomaton::Transition& transition : function) {
      hash =
          mix64(hash, (static_cast<std::uint64_t>(transition.from) << 32U) | static_cast<std::uint64_t>(transition.to));
      if (transition.more != 0 || transition.count != TokenAutomaton::Transition::kGoesOn)
        hash = mix64(
            hash, (static_cast<std::uint64_t>(transition.more) << 16U) | static_cast<std::uint16_t>(transition.count));
    }
    return to_size(hash);
  }
};

/// The functions of texts, each with a number; 0 is that of the empty text.
class Functions {
 public:
  static constexpr std::int32_t kUnknown = -1;

  explicit Functions(const Dfa& dfa) : dfa_(dfa) {
    Function same;
    for (std::int32_t s = 0; s < dfa.states; ++s) same.push_back({s, s});
    number(std::move(same));
  }

  bool full() const { return pairs_ > kMostPairs; }
  const Function& function(std::int32_t f) const { return *functions_[to_size(f)]; }
  bool dead(std::int32_t f) const { return function(f).empty(); }

  std::int32_t after(std::int32_t f, std::uint8_t byte) {
    const std::size_t slot = to_size(f) * to_size(dfa_.classes) + dfa_.byte_class[byte];
    if (then_[slot] == kUnknown) {
      Function made;
      for (const TokenAutomaton::Transition& transition : function(f))
        if (const auto longer = with_byte(transition, byte)) made.push_back(*longer);
      const std::int32_t name = number(std::move(made));  // may move then_
      then_[slot] = name;
    }
    return then_[slot];
  }

 private:
  /// The transition of a text with one byte more; nullopt: it is dead, or counts too much whatever was counted before.
  std::optional<TokenAutomaton::Transition> with_byte(TokenAutomaton::Transition transition, std::uint8_t byte) const {
    const std::int32_t end = dfa_.step(transition.to, byte);
    if (end == Dfa::kDead) return std::nullopt;
    const std::int32_t counter = dfa_.counter[to_size(end)];
    const bool stays = counter != 0 && counter == dfa_.counter[to_size(transition.to)];
    if (stays) {
      std::int16_t& counted =
          transition.count == TokenAutomaton::Transition::kGoesOn ? transition.more : transition.count;
      const std::int32_t after = dfa_.count_after(transition.to, end, counted);
      if (after == Dfa::kTooMany || after > kMostInToken) return std::nullopt;
      counted = static_cast<std::int16_t>(after);
    } else {
      transition.count = counter != 0 ? std::int16_t{0} : TokenAutomaton::Transition::kGoesOn;
    }
    transition.to = end;
    return transition;
  }

  std::int32_t number(Function function) {
    const std::size_t size = function.size();
    const auto [place, fresh] = numbers_.try_emplace(std::move(function), static_cast<std::int32_t>(functions_.size()));
    if (fresh) {
      functions_.push_back(&place->first);
      pairs_ += size + to_size(dfa_.classes);
      then_.resize(then_.size() + to_size(dfa_.classes), kUnknown);
    }
    return place->second;
  }

  const Dfa& dfa_;
  std::unordered_map<Function, std::int32_t, FunctionHash> numbers_;  ///< its keys stay where they are
  std::vector<const Function*> functions_;
  std::vector<std::int32_t> then_;  ///< [function][class of bytes]
  std::size_t pairs_ = 0;
};

Error too_complex() {
  return {ErrorCode::kUsage, "too complex for this vocabulary", "",
          "fewer alternatives and smaller bounded lengths make it simpler"};
}

}  // namespace

Expected<TokenAutomaton> TokenAutomaton::build(const Dfa& dfa, std::span<const std::string_view> tokens,
                                               std::span<const TokenId> stops, const std::stop_token& stop) {
  TokenAutomaton result;
  result.accepting_ = dfa.accepting;
  const std::int32_t ended = dfa.states;
  result.accepting_.push_back(1);
  result.set_bounds(dfa);
  result.class_of_.assign(tokens.size(), kNoClass);
  Functions functions(dfa);
  std::vector<const Function*> classes = {nullptr};
  std::map<std::int32_t, std::int32_t> class_of_function;
  std::size_t pairs = 0;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    if (tokens[t].empty() || std::ranges::count(stops, static_cast<TokenId>(t)) > 0) continue;
    std::int32_t f = 0;
    for (std::size_t i = 0; i < tokens[t].size() && !functions.dead(f); ++i)
      f = functions.after(f, static_cast<std::uint8_t>(tokens[t][i]));
    if (functions.full()) return too_complex();
    if (t % 256 == 0 && stop.stop_requested())
      return Error{ErrorCode::kCancelled, "the structure was not compiled to its end", "", ""};
    if (functions.dead(f)) continue;
    const auto [place, fresh] = class_of_function.try_emplace(f, static_cast<std::int32_t>(classes.size()));
    if (fresh) {
      classes.push_back(&functions.function(f));
      pairs += classes.back()->size();
    }
    result.class_of_[t] = place->second;
  }
  if (pairs > kMostPairs) return too_complex();

  Function end;
  for (std::int32_t s = 0; s <= ended; ++s)
    if (result.accepts(s)) end.push_back({s, ended});
  bool stops_exist = false;
  for (const TokenId id : stops) {
    if (id < 0 || to_size(id) >= tokens.size()) continue;
    result.class_of_[to_size(id)] = static_cast<std::int32_t>(classes.size());
    stops_exist = true;
  }
  if (stops_exist) classes.push_back(&end);
  result.classes_ = static_cast<std::int32_t>(classes.size());

  result.set_moves(classes);
  result.set_successors();
  result.set_fewest();
  return result;
}

void TokenAutomaton::set_bounds(const Dfa& dfa) {
  counts_ = !dfa.most.empty();
  bounds_.assign(accepting_.size(), kTooMany);
  for (std::int32_t s = 0; s < dfa.states; ++s)
    if (const std::int32_t counter = dfa.counter[to_size(s)]; counter != 0)
      bounds_[to_size(s)] = dfa.most[to_size(counter) - 1];
}

std::int32_t TokenAutomaton::count_after(std::int32_t state, const Move& move, std::int32_t count) const {
  const std::int32_t bound = bounds_[to_size(state)];
  if (bound != kTooMany && count + move.more > bound) return kTooMany;
  if (bounds_[to_size(move.to)] == kTooMany) return 0;
  return move.count == Transition::kGoesOn ? count + move.more : move.count;
}

void TokenAutomaton::set_moves(const std::vector<const Function*>& classes) {
  first_move_.assign(accepting_.size() + 1, 0);
  for (std::size_t c = 1; c < classes.size(); ++c)
    for (const Transition& transition : *classes[c]) ++first_move_[to_size(transition.from) + 1];
  for (std::size_t s = 1; s < first_move_.size(); ++s) first_move_[s] += first_move_[s - 1];
  moves_.resize(first_move_.back());
  std::vector<std::size_t> fill(first_move_.begin(), first_move_.end() - 1);
  for (std::size_t c = 1; c < classes.size(); ++c)
    for (const Transition& transition : *classes[c])
      moves_[fill[to_size(transition.from)]++] = {static_cast<std::int32_t>(c), transition.to, transition.more,
                                                  transition.count};
}

void TokenAutomaton::set_successors() {
  first_successor_ = {0};
  for (std::int32_t s = 0; s < states(); ++s) {
    std::vector<std::int32_t> next;
    for (const Move& move : moves(s)) next.push_back(move.to);
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    successors_.insert(successors_.end(), next.begin(), next.end());
    first_successor_.push_back(successors_.size());
  }
}

// Breadth first from the accepting states against the moves: one visit of each. A table by count and state costs the
// product of both, and a structure of n required members has about n states and needs about n tokens.
void TokenAutomaton::set_fewest() {
  std::vector<std::size_t> first(accepting_.size() + 1, 0);
  for (const std::int32_t to : successors_) ++first[to_size(to) + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<std::int32_t> sources(successors_.size());
  std::vector<std::size_t> fill(first.begin(), first.end() - 1);
  for (std::int32_t s = 0; s < states(); ++s)
    for (const std::int32_t to : successors(s)) sources[fill[to_size(to)]++] = s;

  fewest_.assign(accepting_.size(), kUnreachable);
  std::vector<std::int32_t> reached;
  const auto reach = [&](std::int32_t state, std::int32_t fewest) {
    if (fewest_[to_size(state)] != kUnreachable) return;
    fewest_[to_size(state)] = fewest;
    reached.push_back(state);
  };
  for (std::int32_t s = 0; s < states(); ++s) {
    if (!accepts(s)) continue;
    reach(s, 0);
    goes_on_accepting_ = goes_on_accepting_ && std::ranges::any_of(successors(s), [&](auto to) { return accepts(to); });
  }
  for (std::size_t i = 0; i < reached.size(); ++i) {
    const std::size_t to = to_size(reached[i]);
    for (std::size_t at = first[to]; at < first[to + 1]; ++at) reach(sources[at], fewest_[to] + 1);
  }
}

std::span<const TokenAutomaton::Move> TokenAutomaton::moves(std::int32_t state) const {
  const auto s = to_size(state);
  return std::span(moves_).subspan(first_move_[s], first_move_[s + 1] - first_move_[s]);
}

std::span<const std::int32_t> TokenAutomaton::successors(std::int32_t state) const {
  const auto s = to_size(state);
  return std::span(successors_).subspan(first_successor_[s], first_successor_[s + 1] - first_successor_[s]);
}

std::int32_t TokenAutomaton::next(std::int32_t state, TokenId token) const {
  const Move* const found = move(state, token);
  return found == nullptr ? kDead : found->to;
}

const TokenAutomaton::Move* TokenAutomaton::move(std::int32_t state, TokenId token) const {
  if (token < 0 || to_size(token) >= class_of_.size()) return nullptr;
  const std::int32_t wanted = class_of_[to_size(token)];
  const auto all = moves(state);
  const auto found = std::ranges::lower_bound(all, wanted, {}, &Move::token_class);
  return wanted != kNoClass && found != all.end() && found->token_class == wanted ? &*found : nullptr;
}

}  // namespace dllm::constrain
