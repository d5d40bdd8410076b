// The split by outputs: heads, panels of outputs, slices of experts, tokens of the head.
//
// Operators that compute each column from the same columns run on a rank's part; products read whole rows, so that what
// the parts make is gathered before them. A product's outputs are split as the operators after it need: by heads before
// attention, by panels before a gated unit, and by panels where they are gathered at once.
#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <variant>

#include "base/to_size.h"
#include "graph/split_weights.h"

namespace dllm {
namespace {

using Ranges = std::vector<UnitRange>;  ///< by rank, of columns; ascending, and equal ones follow each other

/// Two panels of the kernels, and a block of activations with one scale.
constexpr std::int64_t kSplitColumns = 32;

Ranges panels_of_ranks(std::int64_t width, int ranks) {
  Ranges ranges;
  for (int rank = 0; rank < ranks; ++rank) {
    const UnitRange panels = share_of((width + kSplitColumns - 1) / kSplitColumns, rank, ranks);
    const std::int64_t first = std::min(width, panels.first * kSplitColumns);
    ranges.push_back({first, std::min(width, panels.end() * kSplitColumns) - first});
  }
  return ranges;
}

std::vector<std::int64_t> counts(const Ranges& ranges) {
  std::vector<std::int64_t> all;
  for (const UnitRange& range : ranges) all.push_back(range.count);
  return all;
}

/// Heads of queries and of keys, in columns.
struct HeadRanges {
  Ranges q, kv;
};

/// Whole KV heads with their queries; with fewer KV heads than ranks, some ranks share one and its queries.
HeadRanges heads_of_ranks(const op::Attention& o, int ranks) {
  const std::int64_t group = o.heads / o.kv_heads;
  HeadRanges made;
  const auto add = [&](UnitRange q, UnitRange kv) {
    made.q.push_back({q.first * o.head_dim, q.count * o.head_dim});
    made.kv.push_back({kv.first * o.head_dim, kv.count * o.head_dim});
  };
  for (int rank = 0; rank < ranks; ++rank) {
    if (o.kv_heads >= ranks) {
      const UnitRange kv = share_of(o.kv_heads, rank, ranks);
      add({kv.first * group, kv.count * group}, kv);
      continue;
    }
    const std::int64_t head = std::int64_t{rank} * o.kv_heads / ranks;
    int first = rank, last = rank;
    while (first > 0 && std::int64_t{first - 1} * o.kv_heads / ranks == head) --first;
    while (last + 1 < ranks && std::int64_t{last + 1} * o.kv_heads / ranks == head) ++last;
    const UnitRange own = share_of(group, rank - first, last - first + 1);
    add({head * group + own.first, own.count}, {head, own.count > 0 ? 1 : 0});
  }
  return made;
}

class OutputSplitter {
 public:
  OutputSplitter(const Graph& graph, const RankSplit& split)
      : maker_(graph, split),
        scored_(scored_values(graph)),
        producer_(graph.values.size()),
        planned_(graph.values.size()) {
    for (std::size_t i = 0; i < graph.ops.size(); ++i)
      for (const ValueId out : outputs(graph.ops[i])) producer_[to_size(out)] = i;
    plan_heads();
    plan_gates();
    plan_products();
  }

  RankGraph run() {
    for (const Op& op : maker_.whole().ops) std::visit([this](const auto& o) { emit(o); }, op);
    return maker_.take();
  }

 private:
  int ranks() const { return maker_.split().ranks; }
  std::int64_t width(ValueId id) const { return maker_.whole().value(id).width; }
  UnitRange own(const Ranges& ranges) const { return ranges[to_size(maker_.split().rank)]; }

  // What is split how.

  /// Columns that belong together in an operator over columns; 0: it needs whole rows.
  static std::int64_t slice_of(const Op& op, std::int64_t width) {
    if (const auto* o = std::get_if<op::Rope>(&op)) return o->head_dim;
    if (const auto* o = std::get_if<op::Hadamard>(&op)) return o->order;
    if (const auto* o = std::get_if<op::RmsNorm>(&op)) return o->groups > 1 ? width / o->groups : 0;
    const bool single = std::holds_alternative<op::Scale>(op) || std::holds_alternative<op::Add>(op) ||
                        std::holds_alternative<op::Select>(op) || std::holds_alternative<op::Glu>(op);
    return single ? 1 : 0;
  }

  /// Plans a value as split this way, if it can be made so; what must be made for it is added to `plan`.
  bool can_make(ValueId id, const Ranges& ranges, std::map<ValueId, Ranges>& plan) const {
    const auto same = plan.find(id);
    if (same != plan.end()) return same->second == ranges;
    if (planned_[to_size(id)]) return *planned_[to_size(id)] == ranges;
    const Op& op = maker_.whole().ops[producer_[to_size(id)]];
    if (!std::holds_alternative<op::Linear>(op)) {
      const std::int64_t slice = slice_of(op, width(id));
      if (slice == 0) return false;
      for (const UnitRange& range : ranges)
        if (range.first % slice != 0 || range.count % slice != 0) return false;
      for (const ValueId in : inputs(op))
        if (!can_make(in, ranges, plan)) return false;
    }
    plan[id] = ranges;
    return true;
  }
  void keep(std::map<ValueId, Ranges>& plan) {
    for (auto& [id, ranges] : plan) planned_[to_size(id)] = std::move(ranges);
  }

  void plan_heads() {
    for (const Op& op : maker_.whole().ops) {
      const auto* o = std::get_if<op::Attention>(&op);
      if (o == nullptr) continue;
      const HeadRanges heads = heads_of_ranks(*o, ranks());
      std::map<ValueId, Ranges> plan;
      bool all = can_make(o->q, heads.q, plan);
      for (const Op& other : maker_.whole().ops)
        if (const auto* s = std::get_if<op::StoreKv>(&other); s != nullptr && s->layer == o->layer)
          all = all && can_make(s->k, heads.kv, plan) && can_make(s->v, heads.kv, plan);
      if (!all) continue;
      keep(plan);
      planned_[to_size(o->out)] = heads.q;
      split_layers_.insert(o->layer);
    }
  }

  void plan_gates() {
    for (const Op& op : maker_.whole().ops) {
      const auto* o = std::get_if<op::Glu>(&op);
      if (o == nullptr || planned_[to_size(o->out)]) continue;
      const Ranges ranges = panels_of_ranks(width(o->out), ranks());
      std::map<ValueId, Ranges> plan;
      if (!can_make(o->out, ranges, plan)) continue;
      keep(plan);
    }
  }

  /// All others, unless every rank would need them at once and they are small: logits of routers, and outputs of fewer
  /// panels than ranks.
  void plan_products() {
    std::vector<bool> routes(maker_.whole().values.size(), false);
    for (const Op& op : maker_.whole().ops)
      if (const auto* o = std::get_if<op::Route>(&op)) routes[to_size(o->logits)] = true;
    for (const Op& op : maker_.whole().ops) {
      const auto* o = std::get_if<op::Linear>(&op);
      if (o == nullptr || planned_[to_size(o->out)] || routes[to_size(o->out)]) continue;
      if (width(o->out) <= kSplitColumns * (ranks() - 1)) continue;
      planned_[to_size(o->out)] = panels_of_ranks(width(o->out), ranks());
    }
  }

  // The rank's operators.

  /// The id of a value's columns on this rank, made when an operator writes them; kNoId: none.
  ValueId new_part(ValueId id) {
    const UnitRange range = own(*planned_[to_size(id)]);
    const ValueId part = range.count == 0 ? kNoId : maker_.new_value(id, range.count);
    parts_[id] = part;
    return part;
  }
  ValueId part(ValueId id) const { return parts_.at(id); }

  /// The value with all columns.
  ValueId whole(ValueId id) {
    if (id == kNoId || !planned_[to_size(id)] || !gathered_.insert(id).second) return id;
    const Ranges& ranges = *planned_[to_size(id)];
    op::Gather gather;
    // Of ranks that share columns, the first sends them.
    std::int64_t covered = 0;
    for (const UnitRange& range : ranges) {
      const bool next = range.first == covered;
      gather.parts.push_back(next ? range.count : 0);
      if (next) covered = range.end();
    }
    gather.x = gather.parts[to_size(maker_.split().rank)] == 0 ? kNoId : part(id);
    gather.out = id;
    gather.scored = scored_[to_size(id)];
    gather.codes = only_products_read(id);
    maker_.add(gather);
    return id;
  }

  bool only_products_read(ValueId id) const {
    for (const Op& op : maker_.whole().ops) {
      const std::vector<ValueId> read = inputs(op);
      if (std::ranges::find(read, id) == read.end()) continue;
      const auto* o = std::get_if<op::Linear>(&op);
      if (o == nullptr) return false;
      const std::optional<Ranges>& ranges = planned_[to_size(o->out)];
      if (ranges && std::ranges::any_of(*ranges, [](const UnitRange& range) { return range.count == 0; })) return false;
    }
    return true;
  }

  void emit(const op::Linear& o) {
    op::Linear made = o;
    made.x = whole(o.x);
    if (!planned_[to_size(o.out)]) return maker_.add(maker_.with_weights(made));
    made.out = new_part(o.out);
    if (made.out == kNoId) return;
    const UnitRange range = own(*planned_[to_size(o.out)]);
    made.weight = maker_.part_of(o.weight, range);
    made.bias = maker_.part_of(o.bias, range);
    maker_.add(made);
  }

  /// An operator over columns, whose inputs are split as its output is. adapt(operator, its columns here, all columns).
  template <class O, class Adapt>
  void emit_columns(O& made, std::initializer_list<ValueId*> read, const Adapt& adapt) {
    if (!planned_[to_size(made.out)]) {
      for (ValueId* id : read) *id = whole(*id);
      return maker_.add(maker_.with_weights(made));
    }
    const std::int64_t all = width(made.out);
    made.out = new_part(made.out);
    if (made.out == kNoId) return;
    for (ValueId* id : read)
      if (*id != kNoId) *id = part(*id);
    adapt(made, maker_.graph().value(made.out).width, all);
    maker_.add(maker_.with_weights(made));
  }
  template <class O>
  void emit_columns(O& made, std::initializer_list<ValueId*> read) {
    emit_columns(made, read, [](O&, std::int64_t, std::int64_t) {});
  }

  void emit(op::Rope o) {
    emit_columns(o, {&o.x}, [](op::Rope& made, std::int64_t here, std::int64_t) {
      made.heads = static_cast<std::int32_t>(here / made.head_dim);
    });
  }
  void emit(op::RmsNorm o) {
    emit_columns(o, {&o.x}, [](op::RmsNorm& made, std::int64_t here, std::int64_t all) {
      made.groups = static_cast<std::int32_t>(made.groups * here / all);
    });
  }
  void emit(op::Hadamard o) { emit_columns(o, {&o.x}); }
  void emit(op::Glu o) { emit_columns(o, {&o.gate, &o.up}); }
  void emit(op::Add o) { emit_columns(o, {&o.a, &o.b}); }
  void emit(op::Scale o) { emit_columns(o, {&o.x}); }
  void emit(op::Select o) { emit_columns(o, {&o.canvas, &o.context}); }

  void emit(op::StoreKv o) {
    const bool split = split_layers_.contains(o.layer);
    o.k = split ? part(o.k) : whole(o.k);
    o.v = split ? part(o.v) : whole(o.v);
    if (o.k != kNoId) maker_.add(o);
  }
  void emit(op::Attention o) {
    if (!split_layers_.contains(o.layer)) {
      o.q = whole(o.q);
      return maker_.add(o);
    }
    const HeadRanges heads = heads_of_ranks(o, ranks());
    o.q = part(o.q);
    o.out = new_part(o.out);
    if (o.out == kNoId) return;
    o.heads = static_cast<std::int32_t>(own(heads.q).count / o.head_dim);
    o.kv_heads = static_cast<std::int32_t>(own(heads.kv).count / o.head_dim);
    maker_.add(o);
  }

  void emit(op::Experts o) {
    const Shape& gate = maker_.whole().weights[to_size(o.gate)].shape;
    const Ranges inner = panels_of_ranks(gate[1], ranks()), out = panels_of_ranks(width(o.out), ranks());
    const auto none = [](const UnitRange& range) { return range.count == 0; };
    o.x = whole(o.x);
    o.route = whole(o.route);
    // A rank without a slice would not know which experts are chosen; stacks so small are on all ranks.
    if (std::ranges::any_of(inner, none) || std::ranges::any_of(out, none)) return maker_.add(maker_.with_weights(o));
    planned_[to_size(o.out)] = out;
    o.parts = counts(inner);
    o.gate = maker_.part_of(o.gate, own(inner));
    o.up = maker_.part_of(o.up, own(inner));
    o.down = maker_.part_of(o.down, own(out));
    o.out = new_part(o.out);
    maker_.add(std::move(o));
  }

  void emit(const op::Embed& o) { maker_.add(maker_.with_weights(o)); }
  void emit(const op::HiddenIn& o) { maker_.add(o); }
  void emit(op::HiddenOut o) {
    o.x = whole(o.x);
    maker_.add(o);
  }
  void emit(op::LayerNorm o) {
    o.x = whole(o.x);
    maker_.add(maker_.with_weights(o));
  }
  void emit(op::BlockConv o) {
    o.x = whole(o.x);
    o.dynamic = whole(o.dynamic);
    maker_.add(maker_.with_weights(o));
  }
  void emit(op::Route o) {
    o.logits = whole(o.logits);
    maker_.add(maker_.with_weights(o));
  }
  void emit(op::GatherScored o) {
    o.x = whole(o.x);
    maker_.add(o);
  }
  void emit(const op::ScoreHead& o) { maker_.add_head(o, whole(o.x)); }
  void emit(const op::Gather& o) { maker_.add(o); }  // of a graph that is split already

  RankGraphMaker maker_;
  std::vector<bool> scored_;
  std::vector<std::size_t> producer_;
  std::vector<std::optional<Ranges>> planned_;  ///< by value: how it is split; absent: whole on every rank
  std::map<ValueId, ValueId> parts_;
  std::set<ValueId> gathered_;
  std::set<std::int32_t> split_layers_;  ///< whose heads are split
};

}  // namespace

RankGraph split_outputs(const Graph& graph, const RankSplit& split) { return OutputSplitter(graph, split).run(); }

}  // namespace dllm
