// The split by layers: successive operators on each rank. The embedding's rows come from the first, and all ranks have
// what follows the last layer, whose LM head is split by tokens.
#include <algorithm>
#include <cstdlib>
#include <set>
#include <variant>

#include "base/to_size.h"
#include "graph/cut.h"
#include "graph/split_weights.h"

namespace dllm {
namespace {

class LayerSplitter {
 public:
  LayerSplitter(const Graph& graph, const RankSplit& split) : maker_(graph, split), scored_(scored_values(graph)) {
    find_cuts();
  }

  RankGraph run() {
    const Graph& whole = maker_.whole();
    for (std::size_t i = 0; i < whole.ops.size(); ++i) {
      for (std::size_t rank = 0; rank < cuts_.size(); ++rank)
        if (cuts_[rank] == i) hand_over(rank);
      if (i < tail_ && !everywhere(whole.ops[i]) && owner_of(i) != maker_.split().rank) continue;
      if (const auto* head = std::get_if<op::ScoreHead>(&whole.ops[i])) {
        maker_.add_head(*head, head->x);
        continue;
      }
      if (const auto* hidden = std::get_if<op::HiddenOut>(&whole.ops[i]); hidden != nullptr && i < tail_)
        gather(hidden->x, owner_of(i));
      maker_.add(maker_.with_weights(whole.ops[i]));
    }
    return maker_.take();
  }

 private:
  std::size_t ranks() const { return to_size(maker_.split().ranks); }
  /// Hidden states are a result, which every rank hands out.
  static bool everywhere(const Op& op) { return std::holds_alternative<op::HiddenOut>(op); }
  int owner_of(std::size_t op) const { return static_cast<int>(std::ranges::upper_bound(cuts_, op) - cuts_.begin()); }

  std::int64_t weight_of(const Op& op) const {
    const auto count = [this](WeightId id) {
      return id == kNoId ? 0 : element_count(maker_.whole().weights[to_size(id)].shape);
    };
    if (const auto* o = std::get_if<op::Linear>(&op)) return count(o->weight);
    if (const auto* o = std::get_if<op::Experts>(&op)) return count(o->gate) + count(o->up) + count(o->down);
    return 0;
  }

  /// Rank r ends before operator cuts_[r]; the last ends at the tail, from which all ranks compute everything. Of the
  /// cheapest places: those that share the weights most equally.
  void find_cuts() {
    const Graph& whole = maker_.whole();
    const CutCosts costs = cut_costs(whole);
    tail_ = costs.tail;
    std::vector<std::size_t> places;
    const std::int64_t least = tail_ == 0 ? CutCosts::kNone : *std::ranges::min_element(costs.numbers);
    for (std::size_t i = 1; i < tail_ && least != CutCosts::kNone; ++i)
      if (costs.numbers[i] == least) places.push_back(i);
    places.push_back(tail_);
    std::vector<std::int64_t> before(tail_ + 1, 0);
    for (std::size_t i = 0; i < tail_; ++i) before[i + 1] = before[i] + weight_of(whole.ops[i]);
    for (std::size_t r = 1; r < ranks(); ++r) {
      const std::int64_t goal = before[tail_] * static_cast<std::int64_t>(r) / static_cast<std::int64_t>(ranks());
      const auto better = [&](std::size_t a, std::size_t b) {
        return std::abs(before[a] - goal) < std::abs(before[b] - goal);
      };
      const std::size_t place = *std::ranges::min_element(places, better);
      cuts_.push_back(std::max(place, cuts_.empty() ? place : cuts_.back()));
    }
    cuts_.push_back(tail_);
  }

  /// What rank `from` has computed and others read.
  void hand_over(std::size_t from) {
    for (const ValueId value : handed_over(maker_.whole(), from == 0 ? 0 : cuts_[from - 1], cuts_[from]))
      gather(value, static_cast<int>(from));
  }

  void gather(ValueId id, int from) {
    if (!gathered_.insert(id).second) return;
    const std::int64_t width = maker_.whole().values[to_size(id)].width;
    const bool own = from == maker_.split().rank;
    op::Gather gather;
    gather.x = own ? id : kNoId;
    gather.out = own ? maker_.new_value(id, width) : id;  // which nobody reads where the value is anyway
    gather.parts.assign(ranks(), 0);
    gather.parts[to_size(from)] = width;
    gather.scored = scored_[to_size(id)];
    maker_.add(gather);
  }

  RankGraphMaker maker_;
  std::vector<bool> scored_;
  std::size_t tail_ = 0;
  std::vector<std::size_t> cuts_;
  std::set<ValueId> gathered_;
};

}  // namespace

RankGraph split_layers(const Graph& graph, const RankSplit& split) { return LayerSplitter(graph, split).run(); }

}  // namespace dllm
