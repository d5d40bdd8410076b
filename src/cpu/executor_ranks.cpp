// What several ranks compute of a step's rows and bring together: op::Gather, scored rows, their parts of the LM head.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <ranges>

#include "base/to_size.h"
#include "cpu/executor.h"
#include "numerics/tensor_type.h"

namespace dllm::cpu {

/// The rows of the batch, and of those to be scored, that each rank computes.
void Executor::begin_rows() {
  const auto all = static_cast<std::int64_t>(rows_.size());
  const std::span<const std::int64_t> scored = head_.gather();
  own_rows_ = {0, all};
  own_scored_ = {0, static_cast<std::int64_t>(scored.size())};
  rank_rows_.clear();
  rank_scored_.clear();
  if (!plan_->graph.own_rows) return;
  for (int rank = 0; rank < gather_.size(); ++rank) {
    const UnitRange share = share_of(all, rank, gather_.size());
    std::vector<std::int64_t>& rows = rank_rows_.emplace_back(to_size(share.count));
    std::iota(rows.begin(), rows.end(), share.first);
    std::vector<std::int64_t>& own = rank_scored_.emplace_back();
    for (std::size_t i = 0; i < scored.size(); ++i)
      if (scored[i] >= share.first && scored[i] < share.end()) own.push_back(static_cast<std::int64_t>(i));
  }
  own_rows_ = share_of(all, gather_.rank(), gather_.size());
  const std::vector<std::int64_t>& own = rank_scored_[to_size(gather_.rank())];
  own_scored_ = own.empty() ? UnitRange() : UnitRange{own.front(), own.back() + 1 - own.front()};
}

void Executor::run(const op::GatherScored& o) {
  const std::span<const std::int64_t> from = head_.gather();
  const std::int64_t n = width(o.out);
  for (std::int64_t i = first_row(o.out); i < first_row(o.out) + rows(o.out); ++i) {
    const std::int64_t row = from[to_size(i)];
    // Between rows of this rank there may be another's, which is not here and not sent.
    if (plan_->own_rows[to_size(o.x)] && (row < own_rows_.first || row >= own_rows_.end()))
      std::fill_n(value(o.out) + i * n, n, 0.f);
    else
      std::memcpy(value(o.out) + i * n, value(o.x) + row * n, to_size(n) * sizeof(float));
  }
}

/// The activations of the gathered value if the products after it need nothing else; nullptr: they read floats. All
/// ranks decide alike: their products have the same kinds of weights, and the same inner size.
Activations* Executor::gathered_codes(const op::Gather& o) {
  if (!o.codes || width(o.out) % kScaleBlock != 0 ||
      std::ranges::any_of(o.parts, [](std::int64_t part) { return part % kScaleBlock != 0; }))
    return nullptr;
  std::optional<bool> exact;
  for (const Op& op : plan_->graph.ops) {
    const auto* linear = std::get_if<op::Linear>(&op);
    const auto* head = std::get_if<op::ScoreHead>(&op);
    const ValueId read = linear != nullptr ? linear->x : head != nullptr ? head->x : kNoId;
    if (read != o.out) continue;
    const PackedWeight* packed = packed_.find(linear != nullptr ? linear->weight : head->weight);
    if (packed == nullptr || packed->super || packs_floats(*packed->format)) return nullptr;
    const bool needs = LinearRunner::exact_activations(*packed);
    if (exact && *exact != needs) return nullptr;
    exact = needs;
  }
  return exact ? &linear_.begin_activations(o.out, rows(o.out), width(o.out), *exact) : nullptr;
}

void Executor::run(const op::Gather& o) {
  if (o.kind == GatherKind::kStored) return gather_stored(o.layer);
  if (o.kind == GatherKind::kRows) return gather_rows(o);
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

void Executor::gather_rows(const op::Gather& o) {
  if (o.scored && head_.gather().empty()) return;  // of no rank
  const auto& by_rank = o.scored ? rank_scored_ : rank_rows_;
  const std::vector<std::int64_t>& own = by_rank[to_size(gather_.rank())];
  const std::int64_t n = width(o.out);
  if (Activations* const codes = gathered_codes(o)) {
    parallel_items(pool_, static_cast<std::int64_t>(own.size()), n, [&](std::int64_t i, int) {
      const std::int64_t r = own[to_size(i)];
      codes->quantize(kernels_, value(o.x) + r * n, r, 0, n);
    });
    return codes->gather_rows(gather_, by_rank);
  }
  if (value(o.out) != value(o.x))
    for (const std::int64_t r : own) std::memcpy(value(o.out) + r * n, value(o.x) + r * n, bytes_of<float>(n));
  gather_.rows(by_rank, n, value(o.out));
}

/// K and V of rows that other ranks have computed, as they are in the caches.
void Executor::gather_stored(std::int32_t layer) {
  const auto row_bytes = [&](const Row& row) {
    CpuKvCache& kv = cache(row.sequence);
    return row.shadow ? std::size_t{0} : to_size(2 * kv.shape(layer).kv_heads * kv.position_bytes(layer));
  };
  /// Calls copy(K or V of a head) in an order that all ranks share.
  const auto each_part = [&](int rank, const auto& copy) {
    for (const std::int64_t r : rank_rows_[to_size(rank)]) {
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
    for (const std::int64_t r : rank_rows_[to_size(rank)]) sizes[to_size(rank)] += row_bytes(rows_[to_size(r)]);
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
  head_.run(args, vocab, *scores_, o.softcap, {&gather_, o.first, weight(o.weight).shape[1]},
            linear_.residual_rows(args, o.x));
}

}  // namespace dllm::cpu
