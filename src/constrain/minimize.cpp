#include "constrain/minimize.h"
#include "base/to_size.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace dllm::constrain {
namespace {

/// Blocks of states that are not yet distinguished. A block is a range of `order`; its marked states come first.
class Partition {
 public:
  explicit Partition(std::size_t states) : order_(states), place_(states), block_(states, 0) {
    for (std::size_t i = 0; i < states; ++i) order_[i] = place_[i] = static_cast<std::int32_t>(i);
    blocks_.push_back({0, static_cast<std::int32_t>(states), 0});
  }

  std::int32_t block_of(std::int32_t state) const { return block_[to_size(state)]; }
  std::size_t count() const { return blocks_.size(); }
  std::vector<std::int32_t> members(std::int32_t block) const {
    const Block& b = blocks_[to_size(block)];
    return {order_.begin() + b.begin, order_.begin() + b.end};
  }
  std::int32_t size(std::int32_t block) const { return blocks_[to_size(block)].end - blocks_[to_size(block)].begin; }

  /// True if the state is the first of its block to be marked.
  bool mark(std::int32_t state) {
    Block& b = blocks_[to_size(block_of(state))];
    const std::int32_t place = place_[to_size(state)], target = b.begin + b.marked;
    if (place < target) return false;
    const std::int32_t other = order_[to_size(target)];
    std::swap(order_[to_size(place)], order_[to_size(target)]);
    place_[to_size(other)] = place;
    place_[to_size(state)] = target;
    return b.marked++ == 0;
  }

  /// Makes the marked states a block of their own: its number, or -1 if all or none are marked. Unmarks.
  std::int32_t split(std::int32_t block) {
    Block& b = blocks_[to_size(block)];
    const std::int32_t marked = std::exchange(b.marked, 0);
    if (marked == 0 || marked == size(block)) return -1;
    const Block made{b.begin, b.begin + marked, 0};
    b.begin += marked;
    const auto number = static_cast<std::int32_t>(blocks_.size());
    for (std::int32_t i = made.begin; i < made.end; ++i) block_[to_size(order_[to_size(i)])] = number;
    blocks_.push_back(made);
    return number;
  }

 private:
  struct Block {
    std::int32_t begin, end, marked;
  };

  std::vector<std::int32_t> order_, place_, block_;
  std::vector<Block> blocks_;
};

/// Predecessors by (class, state).
class Predecessors {
 public:
  Predecessors(const std::vector<std::int32_t>& next, std::int32_t states, std::int32_t classes) : states_(states) {
    first_.assign(to_size(states) * to_size(classes) + 1, 0);
    for (std::int32_t s = 0; s < states; ++s)
      for (std::int32_t c = 0; c < classes; ++c) ++first_[slot(c, next[to_size(s * classes + c)]) + 1];
    for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    from_.resize(next.size());
    std::vector<std::int32_t> fill(first_.begin(), first_.end() - 1);
    for (std::int32_t s = 0; s < states; ++s)
      for (std::int32_t c = 0; c < classes; ++c) from_[to_size(fill[slot(c, next[to_size(s * classes + c)])]++)] = s;
  }

  template <class F>
  void each(std::int32_t c, std::int32_t state, F call) const {
    const std::size_t s = slot(c, state);
    for (std::int32_t i = first_[s]; i < first_[s + 1]; ++i) call(from_[to_size(i)]);
  }

 private:
  std::size_t slot(std::int32_t c, std::int32_t state) const { return to_size(c) * to_size(states_) + to_size(state); }
  std::int32_t states_;
  std::vector<std::int32_t> first_, from_;
};

/// Splits until the states of a block agree on where each class leads. `next` is total.
void refine(Partition& partition, const Predecessors& before, std::int32_t classes) {
  std::vector<std::int32_t> work;
  std::vector<std::uint8_t> waiting(partition.count(), 1);
  for (std::size_t i = 0; i < partition.count(); ++i) work.push_back(static_cast<std::int32_t>(i));
  while (!work.empty()) {
    const std::int32_t splitter = work.back();
    work.pop_back();
    waiting[to_size(splitter)] = 0;
    const std::vector<std::int32_t> states = partition.members(splitter);
    for (std::int32_t c = 0; c < classes; ++c) {
      std::vector<std::int32_t> touched;
      for (const std::int32_t state : states)
        before.each(c, state, [&](std::int32_t from) {
          if (partition.mark(from)) touched.push_back(partition.block_of(from));
        });
      for (const std::int32_t block : touched) {
        const std::int32_t made = partition.split(block);
        if (made < 0) continue;
        waiting.push_back(0);
        const bool both = waiting[to_size(block)] != 0;
        const std::int32_t added = both || partition.size(made) <= partition.size(block) ? made : block;
        waiting[to_size(added)] = 1;
        work.push_back(added);
      }
    }
  }
}

/// States that count differently are never equivalent.
void split_counters(Partition& partition, const Dfa& dfa) {
  if (dfa.most.empty()) return;
  std::map<std::pair<std::int32_t, std::uint8_t>, std::vector<std::int32_t>> alike;
  for (std::int32_t s = 0; s < dfa.states; ++s)
    if (const std::int32_t counter = dfa.counter[to_size(s)]; counter != 0)
      alike[{counter, dfa.between[to_size(s)]}].push_back(s);
  for (const auto& [kind, states] : alike) {
    std::vector<std::int32_t> touched;
    for (const std::int32_t state : states)
      if (partition.mark(state)) touched.push_back(partition.block_of(state));
    for (const std::int32_t block : touched) partition.split(block);
  }
}

/// Numbers the blocks from the first state's, breadth first; the sink's stays dead.
Dfa renumber(const Dfa& dfa, const std::vector<std::int32_t>& next, const Partition& partition, std::int32_t sink) {
  Dfa result;
  result.classes = dfa.classes;
  result.byte_class = dfa.byte_class;
  result.most = dfa.most;
  const std::int32_t dead = partition.block_of(sink);
  if (partition.block_of(0) == dead) return result;
  std::vector<std::int32_t> number(partition.count(), Dfa::kDead), example = {0};
  number[to_size(partition.block_of(0))] = 0;
  for (std::size_t i = 0; i < example.size(); ++i) {
    const std::int32_t state = example[i];
    result.accepting.push_back(dfa.accepting[to_size(state)]);
    result.counter.push_back(dfa.counter[to_size(state)]);
    result.between.push_back(dfa.between[to_size(state)]);
    for (std::int32_t c = 0; c < dfa.classes; ++c) {
      const std::int32_t to = next[to_size(state * dfa.classes + c)];
      const std::int32_t block = partition.block_of(to);
      std::int32_t& name = number[to_size(block)];
      if (block != dead && name == Dfa::kDead) {
        name = static_cast<std::int32_t>(example.size());
        example.push_back(to);
      }
      result.next.push_back(name);
    }
  }
  result.states = static_cast<std::int32_t>(example.size());
  return result;
}

}  // namespace

Dfa minimize(const Dfa& dfa) {
  // A sink makes the automaton total; dead ends are equivalent to it.
  const std::int32_t sink = dfa.states;
  std::vector<std::int32_t> next = dfa.next;
  for (std::int32_t& to : next)
    if (to == Dfa::kDead) to = sink;
  next.insert(next.end(), to_size(dfa.classes), sink);
  Partition partition(to_size(sink) + 1);
  for (std::int32_t s = 0; s < dfa.states; ++s)
    if (dfa.accepting[to_size(s)] != 0) partition.mark(s);
  partition.split(0);
  split_counters(partition, dfa);
  refine(partition, Predecessors(next, sink + 1, dfa.classes), dfa.classes);
  return renumber(dfa, next, partition, sink);
}

}  // namespace dllm::constrain
