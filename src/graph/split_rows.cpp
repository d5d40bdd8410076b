// The split by rows: the whole graph on every rank, for a part of its rows.
#include <algorithm>
#include <map>
#include <variant>

#include "base/to_size.h"
#include "graph/split_weights.h"

namespace dllm {
namespace {

class RowSplitter {
 public:
  RowSplitter(const Graph& graph, const RankSplit& split) : maker_(graph, split) { maker_.graph().own_rows = true; }

  RankGraph run() {
    for (const Op& op : maker_.whole().ops) {
      if (const auto* head = std::get_if<op::ScoreHead>(&op)) {
        maker_.add_head(*head, whole(head->x));
        continue;
      }
      maker_.add(of_whole_rows(maker_.with_weights(op)));
      if (const auto* store = std::get_if<op::StoreKv>(&op)) {
        op::Gather gather;
        gather.kind = GatherKind::kStored;
        gather.layer = store->layer;
        maker_.add(gather);
      }
    }
    return maker_.take();
  }

 private:
  /// Operators that read other rows than those they compute get all of them.
  Op of_whole_rows(Op op) {
    if (auto* o = std::get_if<op::BlockConv>(&op)) o->x = whole(o->x);
    if (auto* o = std::get_if<op::Route>(&op); o != nullptr && o->capacity > 0) o->logits = whole(o->logits);
    if (auto* o = std::get_if<op::HiddenOut>(&op)) o->x = whole(o->x);
    return op;
  }

  ValueId whole(ValueId id) {
    const auto known = whole_.find(id);
    if (known != whole_.end()) return known->second;
    op::Gather gather;
    gather.kind = GatherKind::kRows;
    gather.x = id;
    gather.out = maker_.new_value(id, maker_.whole().value(id).width);
    gather.scored = scored_[to_size(id)];
    gather.codes = only_the_head_reads(id);
    maker_.add(gather);
    return whole_[id] = gather.out;
  }

  /// On every rank, which is so if each has some of its tokens.
  bool only_the_head_reads(ValueId id) const {
    if (head_vocab(maker_.whole()) <= kSplitChunk * (maker_.split().ranks - 1)) return false;
    return std::ranges::all_of(maker_.whole().ops, [id](const Op& op) {
      const std::vector<ValueId> read = inputs(op);
      return std::ranges::find(read, id) == read.end() || std::holds_alternative<op::ScoreHead>(op);
    });
  }

  RankGraphMaker maker_;
  std::vector<bool> scored_ = scored_values(maker_.whole());
  std::map<ValueId, ValueId> whole_;
};

}  // namespace

RankGraph split_rows(const Graph& graph, const RankSplit& split) { return RowSplitter(graph, split).run(); }

}  // namespace dllm
