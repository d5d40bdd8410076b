// What several ranks bring together in a step: op::Gather, and their parts of the LM head.
#include <algorithm>
#include <cstring>
#include <ranges>

#include "base/to_size.h"
#include "cpu/executor.h"
#include "numerics/tensor_type.h"

namespace dllm::cpu {

/// The rows of the batch that this rank computes.
void Executor::begin_rows() {
  const auto all = static_cast<std::int64_t>(rows_.size());
  own_rows_ = {0, all};
  row_ends_.clear();
  if (plan_->graph.own_rows) {
    own_rows_ = share_of(all, gather_.rank(), gather_.size());
    for (int rank = 0; rank < gather_.size(); ++rank) row_ends_.push_back(share_of(all, rank, gather_.size()).end());
  }
}

/// The activations of the gathered value if the products after it need nothing else; nullptr: they read floats. All
/// ranks decide alike: their products have the same kinds of weights, and the same inner size.
Activations* Executor::gathered_codes(const op::Gather& o) {
  if (!o.codes || std::ranges::any_of(o.parts, [](std::int64_t part) { return part % kScaleBlock != 0; }))
    return nullptr;
  std::optional<bool> exact;
  for (const Op& op : plan_->graph.ops) {
    const auto* linear = std::get_if<op::Linear>(&op);
    if (linear == nullptr || linear->x != o.out) continue;
    const PackedWeight* packed = packed_.find(linear->weight);
    if (packed == nullptr || packed->super || packs_floats(*packed->format)) return nullptr;
    const bool needs = LinearRunner::exact_activations(*packed);
    if (exact && *exact != needs) return nullptr;
    exact = needs;
  }
  return exact ? &linear_.begin_activations(o.out, rows(o.out), width(o.out), *exact) : nullptr;
}

void Executor::run(const op::Gather& o) {
  if (o.kind == GatherKind::kStored) return gather_stored(o.layer);
  if (o.kind == GatherKind::kRows) {
    const std::int64_t n = width(o.out);
    if (value(o.out) != value(o.x))
      std::memcpy(value(o.out) + own_rows_.first * n, first_value(o.x), bytes_of<float>(own_rows_.count * n));
    return gather_.rows(row_ends_, n, value(o.out));
  }
  const float* const x = o.x == kNoId ? nullptr : value(o.x);
  Activations* const codes = gathered_codes(o);
  if (codes == nullptr) return gather_.columns(x, rows(o.out), o.parts, value(o.out));
  std::int64_t first = 0;
  for (int rank = 0; rank < gather_.rank(); ++rank) first += o.parts[to_size(rank)];
  const std::int64_t own = o.parts[to_size(gather_.rank())];
  if (own > 0)
    parallel_items(pool_, rows(o.out), own,
                   [&](std::int64_t r, int) { codes->quantize(kernels_, x + r * own, r, first, own); });
  codes->gather(gather_, o.parts);
}

/// K and V of rows that other ranks have computed, as they are in the caches.
void Executor::gather_stored(std::int32_t layer) {
  const auto row_bytes = [&](const Row& row) {
    CpuKvCache& kv = cache(row.sequence);
    return row.shadow ? std::size_t{0} : to_size(2 * kv.shape(layer).kv_heads * kv.position_bytes(layer));
  };
  /// Calls copy(K or V of a head) in an order that all ranks share.
  const auto each_part = [&](int rank, const auto& copy) {
    const std::int64_t begin = rank == 0 ? 0 : row_ends_[to_size(rank - 1)];
    for (std::int64_t r = begin; r < row_ends_[to_size(rank)]; ++r) {
      const Row& row = rows_[to_size(r)];
      if (row.shadow) continue;
      CpuKvCache& kv = cache(row.sequence);
      const std::int64_t bytes = kv.position_bytes(layer);
      for (std::int64_t head = 0; head < kv.shape(layer).kv_heads; ++head)
        for (std::byte* const at : {kv.k(layer, head), kv.v(layer, head)})
          copy(at + row.position * bytes, to_size(bytes));
    }
  };
  std::vector<std::size_t> sizes(to_size(gather_.size()), 0);
  for (int rank = 0; rank < gather_.size(); ++rank)
    for (std::int64_t r = rank == 0 ? 0 : row_ends_[to_size(rank - 1)]; r < row_ends_[to_size(rank)]; ++r)
      sizes[to_size(rank)] += row_bytes(rows_[to_size(r)]);
  gather_.exchange(
      sizes,
      [&](std::byte* to) {
        each_part(gather_.rank(), [&to](const std::byte* at, std::size_t bytes) {
          std::memcpy(to, at, bytes);
          to += bytes;
        });
      },
      [&](int rank, const std::byte* from) {
        if (rank == gather_.rank()) return;
        each_part(rank, [&from](std::byte* at, std::size_t bytes) {
          std::memcpy(at, from, bytes);
          from += bytes;
        });
      });
}

void Executor::run(const op::ScoreHead& o) {
  if (head_.gather().empty()) return;
  const std::int64_t vocab = head_vocab(plan_->graph);
  if (o.weight == kNoId) return head_.run({}, vocab, *scores_, o.softcap, {&gather_, 0, 0});
  const LinearArgs args =
      linear_.prepare(weight(o.weight), packed_.find(o.weight), vector(o.bias), value(o.x), rows(o.x), o.x);
  head_.run(args, vocab, *scores_, o.softcap, {&gather_, o.first, weight(o.weight).shape[1]});
}

}  // namespace dllm::cpu
