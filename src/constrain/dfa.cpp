#include "constrain/dfa.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/to_size.h"
#include "base/try.h"
#include "constrain/minimize.h"
#include "constrain/nfa.h"

namespace dllm::constrain {
namespace {

/// States of the nondeterministic automaton by states of the other. A character of a string is 14 states of the one
/// and up to 35 of the other.
constexpr std::int32_t kNfaStates = 6;

Error too_large(const std::string& what, const std::string& where = "") {
  return {ErrorCode::kUsage, "the automaton is too large: " + what, where,
          "fewer or smaller bounded repeats and lengths make it smaller; unbounded ones cost nothing"};
}

Error too_large_at(Error error, const std::string& where) {
  error.where = where;
  return error;
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

  /// Whether something is counted where something else may be, too: then run() gives nothing.
  bool conflicts() const { return conflict_; }
  std::int64_t work() const { return work_; }

  Expected<Dfa> run() {
    set_byte_classes(nfa_, dfa_);
    number({nfa_.start});
    const auto classes = to_size(dfa_.classes);
    for (std::size_t i = 0; i < subsets_.size(); ++i) {
      if (limits_.stop.stop_requested()) return stopped();
      if (conflict_) return too_large("what is counted is not alone");
      std::vector<std::vector<std::int32_t>> targets(classes);
      for (const std::int32_t member : *subsets_[i])
        for (const Nfa::Edge& edge : nfa_.states[to_size(member)].edges) {
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
  /// The states with bytes, and the accepting one, that are reached from these without a byte.
  std::vector<std::int32_t> closure(std::vector<std::int32_t> members) {
    ++stamp_;
    std::vector<std::int32_t> all;
    while (!members.empty()) {
      const std::int32_t one = members.back();
      members.pop_back();
      if (std::exchange(seen_[to_size(one)], stamp_) == stamp_) continue;
      ++work_;
      const Nfa::State& state = nfa_.states[to_size(one)];
      if (!state.edges.empty() || one == nfa_.accepting) all.push_back(one);
      members.insert(members.end(), state.silent.begin(), state.silent.end());
    }
    std::sort(all.begin(), all.end());
    work_ += static_cast<std::int64_t>(all.size());
    return all;
  }

  /// The number of the set of states that are reached from these without a byte.
  std::int32_t number(std::vector<std::int32_t> members) {
    const auto [place, fresh] =
        numbers_.try_emplace(closure(std::move(members)), static_cast<std::int32_t>(subsets_.size()));
    if (fresh) {
      subsets_.push_back(&place->first);
      if (!count_in(place->first)) conflict_ = true;
    }
    return place->second;
  }

  /// What is counted in the closure that was made last. False: one count would not be enough for all its states.
  bool count_in(const std::vector<std::int32_t>& all) {
    const auto loop_of = [this](std::int32_t member) { return nfa_.states[to_size(member)].loop; };
    std::int32_t loop = 0;
    for (const std::int32_t member : all) loop = std::max(loop, loop_of(member));
    dfa_.counter.push_back(0);
    dfa_.between.push_back(0);
    if (loop == 0) return true;
    const Nfa::Loop& counted = nfa_.loops[to_size(loop) - 1];
    const auto bound = std::ranges::find(dfa_.most, counted.most);
    dfa_.counter.back() = static_cast<std::int32_t>(bound - dfa_.most.begin()) + 1;
    if (bound == dfa_.most.end()) dfa_.most.push_back(counted.most);
    if (seen_[to_size(counted.head)] != stamp_)
      return std::ranges::all_of(all, [&](std::int32_t member) { return loop_of(member) == loop; });
    dfa_.between.back() = 1;
    return all == closure({counted.head});
  }

  const Nfa& nfa_;
  const DfaLimits& limits_;
  Dfa dfa_;
  std::map<std::vector<std::int32_t>, std::int32_t> numbers_;
  std::vector<const std::vector<std::int32_t>*> subsets_;
  std::vector<std::int32_t> seen_;
  std::int32_t stamp_ = 0;
  std::int64_t work_ = 0;
  bool conflict_ = false;
};

/// What compile_once() tells besides.
struct Compiled {
  bool conflicts = false;
  std::int64_t work = 0;
  std::string largest{};  ///< the place that has the most states
};

Expected<Dfa> compile_once(const Pattern& pattern, const DfaLimits& limits, bool counts, Compiled& told,
                           Products& products) {
  const std::int32_t most = limits.states * kNfaStates;
  if (pattern.depth > kDeepestPattern) return too_large("its parts are nested too deep");
  const NfaLimits own{
      .states = most, .visits = limits.work, .counts = counts, .product_states = limits.states, .stop = limits.stop};
  const auto nfa = build_nfa(pattern, own, products);
  if (limits.stop.stop_requested()) return stopped();
  told = {false, products.visits, nfa ? nfa->largest : nfa.error().where};
  if (!nfa) return too_large(fmt::format("more than {} states before it is deterministic", most), told.largest);
  Subsets subsets(*nfa, limits);
  auto made = subsets.run();
  told.conflicts = subsets.conflicts();
  told.work = nfa->visits + subsets.work();
  if (!made && made.error().code == ErrorCode::kUsage) return too_large_at(std::move(made).error(), told.largest);
  return made;
}

/// The automaton with as few states as possible; no states: it matches nothing.
Expected<Dfa> compile_minimal(const Pattern& pattern, const DfaLimits& limits, std::int64_t& work) {
  Compiled told;
  Products products;
  auto subsets = compile_once(pattern, limits, /*counts=*/true, told, products);
  work -= told.work;
  if (told.conflicts) {
    subsets = compile_once(pattern, limits, /*counts=*/false, told, products);
    work -= told.work;
  }
  if (!subsets) return subsets;
  Dfa dfa = minimize(*subsets);
  if (dfa.states > limits.states)
    return too_large(fmt::format("{} states, and at most {}", dfa.states, limits.states), told.largest);
  return dfa;
}

}  // namespace

std::int32_t Dfa::count_after(std::int32_t from, std::int32_t to, std::int32_t count) const {
  const auto before = to_size(from), after = to_size(to);
  if (counter[after] == 0 || counter[after] != counter[before]) return 0;
  if (between[before] == 0) return count;
  return count < most[to_size(counter[after]) - 1] ? count + 1 : kTooMany;
}

bool Dfa::matches(std::string_view text) const {
  std::int32_t state = states > 0 ? 0 : kDead, count = 0;
  for (std::size_t i = 0; i < text.size() && state != kDead; ++i) {
    const std::int32_t to = step(state, static_cast<std::uint8_t>(text[i]));
    if (to != kDead) count = count_after(state, to, count);
    state = count == kTooMany ? kDead : to;
  }
  return state != kDead && accepting[to_size(state)] != 0;
}

Expected<Dfa> compile(const Pattern& pattern, const DfaLimits& limits) {
  constexpr std::int32_t kShorter[] = {64, 40, 24};
  std::int64_t work = limits.work * 2;
  auto dfa = compile_minimal(pattern, limits, work);
  const PatternPtr whole(&pattern, [](const Pattern*) {});  // not its owner
  for (const std::int32_t most : kShorter) {
    if (dfa || dfa.error().code != ErrorCode::kUsage || work <= 0 || pattern.depth > kDeepestPattern) break;
    const PatternPtr shorter = with_shorter_products(whole, most);
    if (shorter == whole) break;
    DfaLimits rest = limits;
    rest.work = std::min(limits.work, work);
    auto made = compile_minimal(*shorter, rest, work);
    // What was stopped may be possible: a caller keeps only refusals.
    if (made ? made->states > 0 : made.error().code == ErrorCode::kCancelled) dfa = std::move(made);
  }
  if (dfa && dfa->states == 0) return Error{ErrorCode::kUsage, "no text matches", "", ""};
  return dfa;
}

Expected<Dfa> language(const Pattern& pattern, const DfaLimits& limits, std::int64_t& work, Products& products) {
  DfaLimits own = limits;
  own.work = work;
  Compiled told;
  const auto subsets = compile_once(pattern, own, /*counts=*/false, told, products);
  work -= told.work;
  if (!subsets) return subsets;
  Dfa dfa = minimize(*subsets);
  if (work < 0 || dfa.states > limits.states)
    return too_large(fmt::format("{} states within it", dfa.states), told.largest);
  return dfa;
}

}  // namespace dllm::constrain
