#include "constrain/dfa.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/try.h"
#include "constrain/minimize.h"
#include "constrain/nfa.h"

namespace dllm::constrain {
namespace {

/// States of the nondeterministic automaton by states of the other. A character of a string is 14 states of the one
/// and up to 35 of the other.
constexpr std::int32_t kNfaStates = 6;

Error too_large(const std::string& what) {
  return {ErrorCode::kUsage, "the automaton is too large: " + what, "",
          "fewer or smaller bounded repeats and lengths make it smaller; unbounded ones cost nothing"};
}

Error stopped() { return {ErrorCode::kCancelled, "the structure was not compiled to its end", "", ""}; }

/// Classes of bytes that every edge treats alike. At most 256.
void set_byte_classes(const Nfa& nfa, Dfa& dfa) {
  std::array<bool, 257> starts{};
  for (const Nfa::State& state : nfa.states)
    for (const Nfa::Edge& edge : state.edges) starts[edge.first] = starts[edge.last + 1U] = true;
  dfa.classes = 1;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && starts[byte]) ++dfa.classes;
    dfa.byte_class[byte] = static_cast<std::uint8_t>(dfa.classes - 1);
  }
}

/// The subset construction.
class Subsets {
 public:
  Subsets(const Nfa& nfa, const DfaLimits& limits) : nfa_(nfa), limits_(limits), seen_(nfa.states.size(), 0) {}

  Expected<Dfa> run() {
    set_byte_classes(nfa_, dfa_);
    number({nfa_.start});
    const auto classes = static_cast<std::size_t>(dfa_.classes);
    for (std::size_t i = 0; i < subsets_.size(); ++i) {
      if (limits_.stop.stop_requested()) return stopped();
      std::vector<std::vector<std::int32_t>> targets(classes);
      for (const std::int32_t member : *subsets_[i])
        for (const Nfa::Edge& edge : nfa_.states[static_cast<std::size_t>(member)].edges) {
          ++work_;
          for (std::size_t c = dfa_.byte_class[edge.first]; c <= dfa_.byte_class[edge.last]; ++c)
            targets[c].push_back(edge.to);
        }
      for (std::size_t c = 0; c < classes; ++c)
        dfa_.next.push_back(targets[c].empty() ? Dfa::kDead : number(std::move(targets[c])));
      if (static_cast<std::int64_t>(subsets_.size()) > limits_.states * 2LL || work_ > limits_.work ||
          static_cast<std::int64_t>(dfa_.next.size()) > limits_.cells)
        return too_large(fmt::format("more than {} states before it is minimized", limits_.states));
    }
    dfa_.states = static_cast<std::int32_t>(subsets_.size());
    for (const auto* subset : subsets_)
      dfa_.accepting.push_back(std::binary_search(subset->begin(), subset->end(), nfa_.accepting) ? 1 : 0);
    return std::move(dfa_);
  }

 private:
  /// The number of the set of states that are reached from these without a byte.
  std::int32_t number(std::vector<std::int32_t> members) {
    ++stamp_;
    std::vector<std::int32_t> all;
    while (!members.empty()) {
      const std::int32_t one = members.back();
      members.pop_back();
      if (std::exchange(seen_[static_cast<std::size_t>(one)], stamp_) == stamp_) continue;
      ++work_;
      const Nfa::State& state = nfa_.states[static_cast<std::size_t>(one)];
      if (!state.edges.empty() || one == nfa_.accepting) all.push_back(one);
      members.insert(members.end(), state.silent.begin(), state.silent.end());
    }
    std::sort(all.begin(), all.end());
    work_ += static_cast<std::int64_t>(all.size());
    const auto [place, fresh] = numbers_.try_emplace(std::move(all), static_cast<std::int32_t>(subsets_.size()));
    if (fresh) subsets_.push_back(&place->first);
    return place->second;
  }

  const Nfa& nfa_;
  const DfaLimits& limits_;
  Dfa dfa_;
  std::map<std::vector<std::int32_t>, std::int32_t> numbers_;
  std::vector<const std::vector<std::int32_t>*> subsets_;
  std::vector<std::int32_t> seen_;
  std::int32_t stamp_ = 0;
  std::int64_t work_ = 0;
};

}  // namespace

bool Dfa::matches(std::string_view text) const {
  std::int32_t state = states > 0 ? 0 : kDead;
  for (std::size_t i = 0; i < text.size() && state != kDead; ++i)
    state = step(state, static_cast<std::uint8_t>(text[i]));
  return state != kDead && accepting[static_cast<std::size_t>(state)] != 0;
}

Expected<Dfa> compile(const Pattern& pattern, const DfaLimits& limits) {
  if (pattern.depth > kDeepestPattern) return too_large("its parts are nested too deep");
  const std::int32_t most = limits.states * kNfaStates;
  const auto nfa = build_nfa(pattern, {most, limits.work, limits.stop});
  if (limits.stop.stop_requested()) return stopped();
  if (!nfa) return too_large(fmt::format("more than {} states before it is deterministic", most));
  DLLM_TRY(const Dfa subsets, Subsets(*nfa, limits).run());
  Dfa dfa = minimize(subsets);
  if (dfa.states == 0) return Error{ErrorCode::kUsage, "no text matches", "", ""};
  if (dfa.states > limits.states) return too_large(fmt::format("{} states, and at most {}", dfa.states, limits.states));
  return dfa;
}

}  // namespace dllm::constrain
