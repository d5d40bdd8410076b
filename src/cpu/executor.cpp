#include "cpu/executor.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <new>
#include <variant>

#include "numerics/tensor_type.h"

namespace dllm::cpu {
namespace {

std::int64_t head_vocab(const Graph& graph) {
  for (const Op& op : graph.ops)
    if (const auto* head = std::get_if<op::ScoreHead>(&op))
      return graph.weights[static_cast<std::size_t>(head->weight)].shape[1];
  return 0;
}

std::vector<float> decode(const WeightView& view) {
  const std::int64_t count = element_count(view.shape);
  std::vector<float> values(static_cast<std::size_t>(count));
  codec(view.type).dequantize(view.data.data(), values.data(), count);
  return values;
}

}  // namespace

Executor::Executor(Factory factory, Weights weights, const KernelSet& kernels, int threads, bool exact)
    : factory_(std::move(factory)),
      weights_(std::move(weights)),
      kernels_(kernels),
      pool_(threads),
      linear_(kernels, pool_, exact),
      head_(kernels, pool_, linear_) {
  decode_vectors(factory_({1, 1}));
}

void Executor::decode_vectors(const Graph& graph) {
  vectors_.resize(weights_.size());
  const auto need = [this](WeightId id) {
    if (id == kNoId || !weight(id).present() || !vectors_[static_cast<std::size_t>(id)].empty()) return;
    vectors_[static_cast<std::size_t>(id)] = decode(weight(id));
  };
  for (const Op& op : graph.ops) {
    if (const auto* norm = std::get_if<op::RmsNorm>(&op)) need(norm->gain);
    if (const auto* linear = std::get_if<op::Linear>(&op)) need(linear->bias);
    if (const auto* rope = std::get_if<op::Rope>(&op)) need(rope->factors);
    if (const auto* head = std::get_if<op::ScoreHead>(&op)) need(head->bias);
  }
}

void Executor::begin(std::span<const SequenceStep> batch) {
  batch_ = batch;
  rows_.clear();
  last_position_ = -1;
  std::int64_t most_keys = 0;
  for (std::size_t s = 0; s < batch.size(); ++s) {
    const StepPlan& plan = batch[s].plan;
    for (const PlanRow& row : plan.rows) {
      rows_.push_back({static_cast<std::int32_t>(s), row.position, row.token});
      last_position_ = std::max(last_position_, row.position);
    }
    std::int64_t keys = 0;
    for (const PositionRange& range : plan.visible) keys += range.size();
    most_keys = std::max(most_keys, keys);
    ranges_per_worker_ = std::max(ranges_per_worker_, plan.visible.size());
  }
  head_.arrange(batch, head_vocab(plan_ ? plan_->graph : factory_({1, 1})));

  const StepShape shape{static_cast<std::int64_t>(rows_.size()), static_cast<std::int64_t>(head_.gather().size())};
  if (!plan_ || !plan_->fits(shape)) {
    // Room for the largest shape so far in both directions; its predecessors keep fitting.
    const StepShape room = plan_ ? StepShape{std::max(shape.rows, plan_->graph.shape.rows),
                                             std::max(shape.scored, plan_->graph.shape.scored)}
                                 : shape;
    plan_.reset();  // should the arena not grow, no plan may be left that relies on the old one
    ExecutionPlan plan = make_plan(factory_(room));
    arena_.reserve(bytes_of<float>(plan.arena_floats));
    plan_ = std::move(plan);
  }
  const std::size_t workers = static_cast<std::size_t>(pool_.size());
  scores_per_worker_ = (most_keys + 15) / 16 * 16;
  attention_scores_.reserve(bytes_of<float>(scores_per_worker_ * pool_.size()));
  if (ranges_.size() < ranges_per_worker_ * workers) ranges_.resize(ranges_per_worker_ * workers);
  linear_.forget();
}

std::vector<Scores> Executor::forward(std::span<const SequenceStep> batch) {
  begin(batch);
  std::vector<Scores> scores(batch.size());
  scores_ = &scores;
  for (const SequenceStep& step : batch) {
    auto& kv = static_cast<CpuKvCache&>(*step.cache);
    kv.record(step.plan.rows);
    assert(std::all_of(step.plan.visible.begin(), step.plan.visible.end(),
                       [&](const PositionRange& range) { return kv.holds(range); }));
  }
  try {
    for (const Op& op : plan_->graph.ops) run_op(op);
  } catch (const std::bad_alloc&) {
    // Some layers hold the new rows and some the old ones: the rows are lost.
    for (const SequenceStep& step : batch)
      for (const PlanRow& row : step.plan.rows) step.cache->invalidate({row.position, row.position + 1});
    throw;
  }
  scores_ = nullptr;
  batch_ = {};
  return scores;
}

void Executor::run_op(const Op& op) {
  const auto visit = [&] { std::visit([this](const auto& o) { run(o); }, op); };
  if (profile_ == nullptr) return visit();
  const auto start = std::chrono::steady_clock::now();
  visit();
  profile_->add(op_name(op), std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

void Executor::run(const op::Embed& o) {
  const WeightView& table = weight(o.table);
  const Codec& format = codec(table.type);
  const std::int64_t n = width(o.out), row_bytes = format.row_bytes(n);
  float* out = value(o.out);
  parallel_items(pool_, rows(o.out), n, [&](std::int64_t r, int) {
    const std::int64_t token = rows_[static_cast<std::size_t>(r)].token;
    format.dequantize(table.data.data() + token * row_bytes, out + r * n, n);
  });
}

void Executor::run(const op::RmsNorm& o) {
  const std::int64_t n = width(o.x), slice = n / o.groups;
  const float *x = value(o.x), *gain = vector(o.gain);
  float* out = value(o.out);
  parallel_items(pool_, rows(o.x), n, [&](std::int64_t r, int) {
    for (std::int64_t i = r * n; i < (r + 1) * n; i += slice) kernels_.rms_norm(x + i, gain, o.eps, slice, out + i);
  });
}

void Executor::run(const op::Linear& o) {
  const LinearArgs args = linear_.prepare(weight(o.weight), vector(o.bias), value(o.x), rows(o.x), o.x);
  linear_.run(args, width(o.out), value(o.out));
}

const RopeTable& Executor::rope_table(const op::Rope& o) {
  for (RopeEntry& entry : ropes_)
    if (entry.spec.dims == o.dims && entry.spec.theta == o.theta && entry.spec.scale == o.scale &&
        entry.spec.factors == o.factors) {
      entry.table.grow(last_position_ + 1);
      return entry.table;
    }
  const float* factors = vector(o.factors);
  ropes_.push_back({o, RopeTable(o.dims, o.theta, o.scale,
                                 factors == nullptr ? std::span<const float>()
                                                    : std::span(factors, static_cast<std::size_t>(o.dims / 2)))});
  ropes_.back().table.grow(last_position_ + 1);
  return ropes_.back().table;
}

void Executor::run(const op::Rope& o) {
  const RopeTable& table = rope_table(o);
  const std::int64_t n = width(o.x);
  const float* x = value(o.x);
  float* out = value(o.out);
  parallel_items(pool_, rows(o.x), n, [&](std::int64_t r, int) {
    const Position position = rows_[static_cast<std::size_t>(r)].position;
    kernels_.rope(
        {o.heads, o.head_dim, o.dims, o.layout == RopeLayout::kInterleaved, table.cos(position), table.sin(position)},
        x + r * n, out + r * n);
  });
}

void Executor::run(const op::StoreKv& o) {
  const std::int64_t n = width(o.k);
  const float *k = value(o.k), *v = value(o.v);
  parallel_items(pool_, rows(o.k), 2 * n, [&](std::int64_t r, int) {
    const Row& row = rows_[static_cast<std::size_t>(r)];
    CpuKvCache& kv = cache(row.sequence);
    const std::size_t bytes = static_cast<std::size_t>(n) * kv.element_bytes();
    const auto store = [&](const float* from, std::byte* to) {
      if (kv.element() == KvElement::kF32) {
        std::memcpy(to, from, bytes);
      } else {
        kernels_.to_half(from, n, reinterpret_cast<std::uint16_t*>(to));
      }
    };
    store(k + r * n, kv.k(o.layer) + static_cast<std::size_t>(row.position) * bytes);
    store(v + r * n, kv.v(o.layer) + static_cast<std::size_t>(row.position) * bytes);
  });
}

std::span<const KeyRange> Executor::visible_keys(const Row& row, int worker) {
  const StepPlan& plan = batch_[static_cast<std::size_t>(row.sequence)].plan;
  KeyRange* ranges = ranges_.data() + static_cast<std::size_t>(worker) * ranges_per_worker_;
  std::size_t count = 0;
  // j/B <= i/B means j < (i/B + 1) B.
  const std::int64_t block = plan.causal_block;
  const std::int64_t limit = block > 0 ? (row.position / block + 1) * block : std::int64_t{1} << 40;
  for (const PositionRange& range : plan.visible) {
    const std::int64_t end = std::min<std::int64_t>(range.end, limit);
    if (range.begin < end) ranges[count++] = {range.begin, end};
  }
  return {ranges, count};
}

void Executor::attend_row(const op::Attention& o, std::int64_t r, std::int64_t kv_head, int worker) {
  const Row& row = rows_[static_cast<std::size_t>(r)];
  CpuKvCache& kv = cache(row.sequence);
  const std::span<const KeyRange> ranges = visible_keys(row, worker);
  const std::size_t head_bytes =
      static_cast<std::size_t>(kv_head) * static_cast<std::size_t>(o.head_dim) * kv.element_bytes();
  AttentionArgs args;
  args.k = kv.k(o.layer) + head_bytes;
  args.v = kv.v(o.layer) + head_bytes;
  args.half = kv.element() == KvElement::kF16;
  args.stride = kv.width(o.layer);
  args.head_dim = o.head_dim;
  args.scale = o.scale;
  args.ranges = ranges.data();
  args.range_count = static_cast<std::int64_t>(ranges.size());
  args.scores = attention_scores_.as<float>() + worker * scores_per_worker_;
  const std::int64_t group = o.heads / o.kv_heads;
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    args.q = value(o.q) + r * width(o.q) + head * o.head_dim;
    args.out = value(o.out) + r * width(o.out) + head * o.head_dim;
    kernels_.attention(args);
  }
}

void Executor::run(const op::Attention& o) {
  // Neighbouring items are the rows of one kv head, whose keys stay in cache.
  const std::int64_t count = rows(o.q);
  const std::int64_t cost = scores_per_worker_ * o.head_dim * 2 * o.heads / o.kv_heads;
  parallel_items(pool_, count * o.kv_heads, cost,
                 [&](std::int64_t item, int worker) { attend_row(o, item % count, item / count, worker); });
}

void Executor::run(const op::SwiGlu& o) {
  const std::int64_t n = width(o.out);
  const float *gate = value(o.gate), *up = value(o.up);
  float* out = value(o.out);
  parallel_items(pool_, rows(o.out), 8 * n,
                 [&](std::int64_t r, int) { kernels_.swiglu(gate + r * n, up + r * n, n, out + r * n); });
}

void Executor::run(const op::Add& o) {
  const std::int64_t n = width(o.out);
  const float *a = value(o.a), *b = value(o.b);
  float* out = value(o.out);
  parallel_items(pool_, rows(o.out), n,
                 [&](std::int64_t r, int) { kernels_.add(a + r * n, b + r * n, n, out + r * n); });
}

void Executor::run(const op::GatherScored& o) {
  const std::span<const std::int64_t> from = head_.gather();
  const std::int64_t n = width(o.out);
  for (std::size_t i = 0; i < from.size(); ++i)
    std::memcpy(value(o.out) + static_cast<std::int64_t>(i) * n, value(o.x) + from[i] * n,
                static_cast<std::size_t>(n) * sizeof(float));
}

void Executor::run(const op::ScoreHead& o) {
  if (head_.gather().empty()) return;
  const LinearArgs args = linear_.prepare(weight(o.weight), vector(o.bias), value(o.x), rows(o.x), o.x);
  head_.run(args, weight(o.weight).shape[1], *scores_);
}

}  // namespace dllm::cpu
