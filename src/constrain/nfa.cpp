#include "constrain/nfa.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "base/to_size.h"
#include "constrain/dfa.h"
#include "constrain/minimize.h"
#include "constrain/product.h"

namespace dllm::constrain {
namespace {

/// How often a part that is not counted is repeated at most: a character of a string is some 14 states, of 10 000.
constexpr std::int32_t kLongestRepeat = 200;

/// Builds backwards: each pattern is given the state that follows it. A pattern that occurs twice before the same state
/// exists once, so that the optional members of an object cost as many states as they are, and not their square.
class NfaBuilder {
 public:
  NfaBuilder(const NfaLimits& limits, Products& products) : limits_(limits), products_(products) {}

  Expected<Nfa> run(const Pattern& pattern) {
    nfa_.accepting = add();
    nfa_.start = entry(pattern, nfa_.accepting);
    products_.visits = visits_;
    const auto largest = std::ranges::max_element(sizes_, {}, &Size::states);
    if (full_) return Error{ErrorCode::kUsage, "the automaton is too large", full_at_.value_or(*largest->place), ""};
    nfa_.visits = visits_;
    nfa_.largest = *largest->place;
    return std::move(nfa_);
  }

 private:
  std::int32_t add() {
    if (static_cast<std::int32_t>(nfa_.states.size()) >= limits_.states) {
      full_ = true;
      return 0;
    }
    nfa_.states.emplace_back();
    ++sizes_[place_].states;
    return static_cast<std::int32_t>(nfa_.states.size()) - 1;
  }
  Nfa::State& state(std::int32_t i) { return nfa_.states[static_cast<std::size_t>(i)]; }

  /// The state from which `pattern`, then `next` is matched.
  std::int32_t entry(const Pattern& pattern, std::int32_t next) {
    // Parts that match the empty text add no states, and are visited all the same.
    if (++visits_ > limits_.visits || (visits_ % 1024 == 0 && limits_.stop.stop_requested())) full_ = true;
    if (full_) return 0;
    const auto key = std::pair(&pattern, next);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    const std::size_t outer = place_;
    if (!pattern.place.empty()) {
      place_ = sizes_.size();
      sizes_.push_back({&pattern.place, 0});
    }
    const std::int32_t made = make(pattern, next);
    place_ = outer;
    known_.emplace(key, made);
    return made;
  }

  std::int32_t make(const Pattern& pattern, std::int32_t next) {
    switch (pattern.kind) {
      case Pattern::Kind::kChars:
        return chars(pattern.chars, next);
      case Pattern::Kind::kText:
        return text(pattern.text, next);
      case Pattern::Kind::kSequence:
        for (auto part = pattern.parts.rbegin(); part != pattern.parts.rend(); ++part) next = entry(**part, next);
        return next;
      case Pattern::Kind::kEither: {
        const std::int32_t fork = add();
        for (const PatternPtr& part : pattern.parts) {
          const std::int32_t branch = entry(*part, next);
          state(fork).silent.push_back(branch);
        }
        return fork;
      }
      case Pattern::Kind::kRepeat:
        return repeats(*pattern.parts.front(), pattern.least, pattern.most, next);
      case Pattern::Kind::kCounted:
        if (limits_.counts) return counts(pattern, next);
        return repeats(*pattern.parts.front(), 0, std::min(pattern.most, kLongestRepeat), next);
      case Pattern::Kind::kBoth:
        return automaton(pattern, Product::kBoth, next);
      case Pattern::Kind::kExcept:
        return automaton(pattern, Product::kExcept, next);
    }
    return next;
  }

  std::int32_t text(std::string_view text, std::int32_t next) {
    for (std::size_t i = text.size(); i-- > 0 && !full_;) {
      const auto byte = static_cast<std::uint8_t>(text[i]);
      const std::int32_t from = add();
      state(from).edges.push_back({byte, byte, next});
      next = from;
    }
    return next;
  }

  std::int32_t chars(const CharSet& set, std::int32_t next) {
    const std::int32_t from = add();
    for (const ByteRanges& ranges : bytes_of(set)) {
      std::int32_t to = next;
      for (std::size_t i = ranges.size(); i-- > 1 && !full_;) {
        const std::int32_t between = add();
        state(between).edges.push_back({ranges[i].first, ranges[i].second, to});
        to = between;
      }
      state(from).edges.push_back({ranges[0].first, ranges[0].second, to});
    }
    return from;
  }

  const std::vector<ByteRanges>& bytes_of(const CharSet& set) {
    const auto [place, fresh] = bytes_.try_emplace(&set);
    if (fresh) place->second = utf8_ranges(set);
    return place->second;
  }

  std::int32_t counts(const Pattern& pattern, std::int32_t next) {
    const std::int32_t head = add();
    nfa_.loops.push_back({head, pattern.most});
    const auto loop = static_cast<std::int32_t>(nfa_.loops.size());
    const std::size_t first = nfa_.states.size();
    const std::int32_t body = entry(*pattern.parts.front(), head);
    if (full_) return 0;
    // No other part leads to this head, so these states are the body's alone.
    for (std::size_t i = first; i < nfa_.states.size(); ++i) nfa_.states[i].loop = loop;
    state(head).loop = loop;
    state(head).silent = {body, next};
    return head;
  }

  std::int32_t repeats(const Pattern& part, std::int32_t least, std::int32_t most, std::int32_t next) {
    if (most == Pattern::kUnbounded) {
      const std::int32_t loop = add();
      const std::int32_t body = entry(part, loop);
      state(loop).silent = {body, next};
      next = loop;
    } else {
      const std::int32_t end = next;
      for (std::int32_t i = least; i < most && !full_; ++i) {
        const std::int32_t fork = add();
        const std::int32_t body = entry(part, next);
        state(fork).silent = {body, end};
        next = fork;
      }
    }
    for (std::int32_t i = 0; i < least && !full_; ++i) next = entry(part, next);
    return next;
  }

  std::int32_t automaton(const Pattern& pattern, Product kind, std::int32_t next) {
    auto known = products_.made.find(&pattern);
    if (known == products_.made.end()) {
      auto made = product_of(pattern, kind);
      if (!made) {
        full_ = true;
        full_at_ = made.error().where.empty() ? *sizes_[place_].place : made.error().where;
        return 0;
      }
      known = products_.made.emplace(&pattern, *std::move(made)).first;
    }
    const Dfa& dfa = known->second;
    const auto first = static_cast<std::int32_t>(nfa_.states.size());
    for (std::int32_t s = 0; s < dfa.states && !full_; ++s) add();
    if (full_) return 0;
    for (std::int32_t s = 0; s < dfa.states; ++s) {
      if (dfa.accepting[to_size(s)] != 0) state(first + s).silent.push_back(next);
      add_edges(dfa, s, first);
    }
    return dfa.states > 0 ? first : add();
  }

  Expected<Dfa> product_of(const Pattern& pattern, Product kind) {
    std::int64_t work = limits_.visits - visits_;
    const DfaLimits limits{.states = limits_.product_states, .stop = limits_.stop};
    auto made = language(*pattern.parts[0], limits, work, products_);
    if (made) {
      auto second = language(*pattern.parts[1], limits, work, products_);
      if (second) second = product(*made, *second, kind, limits.states, work);
      made = std::move(second);
    }
    visits_ = limits_.visits - work;
    if (made && made->states > 0) return minimize(*made);
    return made;
  }

  /// Bytes with the same target that follow each other share an edge.
  void add_edges(const Dfa& dfa, std::int32_t from, std::int32_t first) {
    std::vector<Nfa::Edge>& edges = state(first + from).edges;
    std::int32_t before = Dfa::kDead;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const auto one = static_cast<std::uint8_t>(byte);
      const std::int32_t to = dfa.step(from, one);
      if (to != Dfa::kDead && to == before)
        edges.back().last = one;
      else if (to != Dfa::kDead)
        edges.push_back({one, one, first + to});
      before = to;
    }
  }

  struct KeyHash {
    std::size_t operator()(const std::pair<const Pattern*, std::int32_t>& key) const {
      return static_cast<std::size_t>(
          mix64(std::hash<const Pattern*>()(key.first), static_cast<std::uint64_t>(key.second)));
    }
  };

  const NfaLimits& limits_;
  bool full_ = false;
  std::int64_t visits_ = 0;
  Nfa nfa_;
  std::unordered_map<std::pair<const Pattern*, std::int32_t>, std::int32_t, KeyHash> known_;
  std::unordered_map<const CharSet*, std::vector<ByteRanges>> bytes_;  ///< by the pattern's set
  Products& products_;
  /// States that parts with a place take, without the parts within them that have one. First: those without a place.
  struct Size {
    const std::string* place;
    std::int64_t states;
  };
  const std::string nowhere_{};
  std::vector<Size> sizes_ = {{&nowhere_, 0}};
  std::size_t place_ = 0;
  std::optional<std::string> full_at_{};  ///< of a product that is too large
};

}  // namespace

Expected<Nfa> build_nfa(const Pattern& pattern, const NfaLimits& limits, Products& products) {
  return NfaBuilder(limits, products).run(pattern);
}

}  // namespace dllm::constrain
