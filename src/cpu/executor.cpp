#include "cpu/executor.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <variant>

#include "backend/failed_pass.h"
#include "base/to_size.h"
#include "cpu/embedding.h"
#include "cpu/model_memory.h"
#include "numerics/tensor_type.h"

namespace dllm::cpu {
namespace {

/// Reached only if make_plan() puts an operator into a run of the wrong kind.
[[noreturn]] void misplaced(const Op& op, std::string_view how) {
  std::fprintf(stderr, "dllm: internal error: the plan runs %s %s\n", std::string(op_name(op)).c_str(),
               std::string(how).c_str());
  std::abort();
}

std::vector<float> decode(const WeightView& view) {
  const std::int64_t count = element_count(view.shape);
  std::vector<float> values(to_size(count));
  codec(view.type).dequantize(view.data.data(), values.data(), count);
  return values;
}

}  // namespace

Executor::Executor(Factory factory, Weights weights, const ExecutorOptions& options)
    : factory_(std::move(factory)),
      weights_(std::move(weights)),
      kernels_(options.kernels),
      pool_(options.threads),
      linear_(kernels_, pool_, std::nullopt, options.residual),
      shared_packed_(std::make_shared<PackedWeights>()),
      packed_(*shared_packed_),
      attention_(kernels_, pool_, options.bf16_attention),
      route_(kernels_, pool_),
      experts_(kernels_, pool_, linear_),
      head_(kernels_, pool_, linear_),
      gather_(options.ranks) {
  const Graph graph = factory_({1, 1});
  decode_vectors(graph);
  if (options.packs)
    *shared_packed_ =
        PackedWeights::pack(graph, weights_, pool_, options.weight_cache, options.progress, options.super);
}

Executor::Executor(const Executor& other, int threads)
    : factory_(other.factory_),
      weights_(other.weights_),
      kernels_(other.kernels_),
      pool_(threads),
      linear_(kernels_, pool_, std::nullopt, other.linear_.residual()),
      shared_packed_(other.shared_packed_),
      packed_(*shared_packed_),
      attention_(kernels_, pool_, other.attention_.bf16()),
      route_(kernels_, pool_),
      experts_(kernels_, pool_, linear_),
      head_(kernels_, pool_, linear_),
      vectors_(other.vectors_),
      ones_(other.ones_),
      hadamards_(other.hadamards_),
      gather_(nullptr) {}

void Executor::decode_vectors(const Graph& graph) {
  vectors_.resize(weights_.size());
  hadamards_ = Hadamards(graph);
  const auto need = [this](WeightId id) {
    if (id == kNoId || !weight(id).present() || !vectors_[to_size(id)].empty()) return;
    vectors_[to_size(id)] = decode(weight(id));
  };
  for (const Op& op : graph.ops) {
    if (const auto* norm = std::get_if<op::RmsNorm>(&op)) {
      need(norm->gain);
      const auto slice = to_size(graph.value(norm->x).width / norm->groups);
      if (norm->gain == kNoId && ones_.size() < slice) ones_.resize(slice, 1.f);
    }
    if (const auto* norm = std::get_if<op::LayerNorm>(&op)) {
      need(norm->gain);
      need(norm->bias);
    }
    if (const auto* glu = std::get_if<op::Glu>(&op); glu != nullptr && glu->up == kNoId) {
      const auto n = to_size(graph.value(glu->gate).width);
      if (ones_.size() < n) ones_.resize(n, 1.f);
    }
    if (const auto* scale = std::get_if<op::Scale>(&op)) {
      need(scale->context);
      need(scale->canvas);
    }
    if (const auto* linear = std::get_if<op::Linear>(&op)) need(linear->bias);
    if (const auto* rope = std::get_if<op::Rope>(&op)) need(rope->factors);
    if (const auto* route = std::get_if<op::Route>(&op)) {
      need(route->bias);
      need(route->expert_scale);
    }
    if (const auto* conv = std::get_if<op::BlockConv>(&op)) need(conv->base);
    if (const auto* head = std::get_if<op::ScoreHead>(&op)) need(head->bias);
  }
}

void Executor::begin(std::span<const SequenceStep> batch) {
  batch_ = batch;
  rows_.clear();
  last_position_ = -1;
  for (std::size_t s = 0; s < batch.size(); ++s) {
    const StepPlan& plan = batch[s].plan;
    auto mixture = plan.mixtures.begin();
    auto given = plan.given.begin();
    const std::size_t hidden = plan.hidden.size() / to_size(std::max<std::int64_t>(1, plan.row_count()));
    for (std::int32_t i = 0; i < plan.row_count(); ++i) {
      const PlanRow& row = plan.row(i);
      const bool mixed = mixture != plan.mixtures.end() && i == mixture->row;
      const bool shadow = static_cast<std::size_t>(i) >= plan.rows.size();
      rows_.push_back({static_cast<std::int32_t>(s), row.position, row.token, mixed ? &*mixture++ : nullptr,
                       plan.region, shadow, plan.hidden.data() + static_cast<std::size_t>(i) * hidden,
                       given != plan.given.end() && i == given->row ? (given++)->values : nullptr, plan.columns});
      last_position_ = std::max(last_position_, row.position);
    }
  }
  head_.arrange(batch, head_vocab(plan_ ? plan_->graph : factory_({1, 1})));

  const StepShape shape{static_cast<std::int64_t>(rows_.size()), static_cast<std::int64_t>(head_.gather().size())};
  if (!plan_ || !plan_->fits(shape)) {
    // Capacity for the largest shape so far in both dimensions, so that earlier shapes still fit.
    const StepShape room = plan_ ? StepShape{std::max(shape.rows, plan_->graph.shape.rows),
                                             std::max(shape.scored, plan_->graph.shape.scored)}
                                 : shape;
    plan_.reset();  // if growing the arena fails, no plan may remain that relies on the old one
    ExecutionPlan plan = make_plan(factory_(room));
    arena_.reserve(bytes_of<float>(plan.arena_floats));
    plan_ = std::move(plan);
  }
  begin_rows();
  linear_.forget();
}

std::vector<Scores> Executor::forward(std::span<const SequenceStep> batch) {
  try {
    return run_pass(batch);
  } catch (...) {
    invalidate_rows(batch);
    throw;
  }
}

std::vector<Scores> Executor::run_pass(std::span<const SequenceStep> batch) {
  begin(batch);
  std::vector<Scores> scores(batch.size());
  scores_ = &scores;
  begin_hidden(scores);
  for (const SequenceStep& step : batch) {
    auto& kv = static_cast<CpuKvCache&>(*step.cache);
    kv.record(step.plan.rows);
    assert(std::ranges::all_of(step.plan.visible, [&](const PositionRange& range) { return kv.holds(range); }));
  }
  attention_.begin(batch, own_rows_);  // asks who stores which row
  for (const OpRun& part : plan_->runs) run_part(part);
  scores_ = nullptr;
  batch_ = {};
  return scores;
}

void Executor::run_part(const OpRun& part) {
  static_assert(each_has_one_way(static_cast<const Op*>(nullptr)), "an operator has no run() or row(), or both");
  const auto work = [&] {
    switch (part.kind) {
      case OpRun::Kind::kRows:
        return run_rows(part);
      case OpRun::Kind::kProducts:
        return run_products(part);
      case OpRun::Kind::kGated:
        return run_gated(part);
      case OpRun::Kind::kSingle:
        std::visit(
            [this](const auto& o) {
              if constexpr (runs_alone<std::decay_t<decltype(o)>>())
                run(o);
              else
                misplaced(o, "alone");
            },
            plan_->graph.ops[part.first]);
    }
  };
  if (profile_ == nullptr) return work();
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  std::string kind;
  std::string_view last;
  for (std::size_t i = part.first; i < part.last; ++i) {
    const std::string_view name = op_name(plan_->graph.ops[i]);
    if (name != last) kind += (kind.empty() ? "" : "+") + std::string(name);
    last = name;
  }
  profile_->add(kind, elapsed.count());
}

Executor::MadeActivations Executor::begin_activations(const OpRun& part, ValueId value) {
  MadeActivations made;
  made.first_row = first_row(value);
  for (std::size_t i = part.last; i < plan_->graph.ops.size(); ++i) {
    const auto* linear = std::get_if<op::Linear>(&plan_->graph.ops[i]);
    if (linear == nullptr || linear->x != value) break;
    const PackedWeight* packed = packed_.find(linear->weight);
    if (packed == nullptr || packed->super || packs_floats(*packed->format)) continue;
    const bool exact = LinearRunner::exact_activations(*packed);
    Activations*& kind = made.kinds[exact ? 1 : 0];
    if (kind == nullptr) kind = &linear_.begin_activations(value, rows(value), width(value), exact);
  }
  return made;
}

void Executor::run_rows(const OpRun& part) {
  const std::span<const Op> ops = std::span(plan_->graph.ops).subspan(part.first, part.last - part.first);
  for (const Op& op : ops)
    if (const auto* rope = std::get_if<op::Rope>(&op)) rope_table(*rope).grow(last_position_ + 1);
  const ValueId last = part.made;
  const MadeActivations quantized = last == kNoId ? MadeActivations() : begin_activations(part, last);
  const std::int64_t cost = part.cost + (quantized.any() ? width(last) : 0);
  const std::int64_t first = first_row(part.sized);
  parallel_items(pool_, rows(part.sized), cost / 3, [&](std::int64_t item, int) {
    const std::int64_t r = first + item;
    for (const Op& op : ops)
      std::visit(
          [this, r](const auto& o) {
            if constexpr (runs_by_row<std::decay_t<decltype(o)>>())
              row(o, r);
            else
              misplaced(o, "by rows");
          },
          op);
    if (quantized.any()) quantized.quantize(kernels_, value(last) + r * width(last), r, 0, width(last));
  });
}

Product Executor::product(const op::Linear& o) {
  const LinearArgs args =
      linear_.prepare(weight(o.weight), packed_.find(o.weight), vector(o.bias), first_value(o.x), rows(o.x), o.x);
  return {args, width(o.out), first_value(o.out), linear_.residual_rows(args, o.x)};
}

void Executor::run_products(const OpRun& part) {
  products_.clear();
  for (std::size_t i = part.first; i < part.last; ++i)
    products_.push_back(product(std::get<op::Linear>(plan_->graph.ops[i])));
  linear_.run(products_);
}

void Executor::run_gated(const OpRun& part) {
  const Product gate = product(std::get<op::Linear>(plan_->graph.ops[part.first]));
  const Product up = product(std::get<op::Linear>(plan_->graph.ops[part.first + 1]));
  const auto& gating = std::get<op::Glu>(plan_->graph.ops[part.last - 1]);
  const ValueId out = gating.out;
  const auto gated = gating.activation == Activation::kGeluTanh ? kernels_.geglu : kernels_.swiglu;
  const MadeActivations quantized = begin_activations(part, out);
  const std::int64_t n = width(out), first = first_row(out);
  linear_.run_gated(gate, up, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = 0; r < rows(out); ++r) {
      const std::int64_t at = r * n + begin;
      float* const made = first_value(out) + at;
      gated(gate.out + at, up.out + at, end - begin, made);
      quantized.quantize(kernels_, made, first + r, begin, end - begin);
    }
  });
}

void Executor::row(const op::Embed& o, std::int64_t r) {
  const Row& at = rows_[to_size(r)];
  const std::int64_t n = width(o.out);
  if (at.given != nullptr && o.part != EmbedPart::kMixture) {
    std::copy_n(at.given, n, value(o.out) + r * n);
    return;
  }
  embed_row(o, weight(o.table), at.token, at.mixture, n, value(o.out) + r * n);
}

void Executor::row(const op::RmsNorm& o, std::int64_t r) {
  const std::int64_t n = width(o.x), slice = n / o.groups;
  const float *x = value(o.x), *gain = o.gain == kNoId ? ones_.data() : vector(o.gain);
  float* out = value(o.out);
  for (std::int64_t i = r * n; i < (r + 1) * n; i += slice) kernels_.rms_norm(x + i, gain, o.eps, slice, out + i);
}

void Executor::row(const op::Hadamard& o, std::int64_t r) {
  const std::int64_t n = width(o.x);
  kernels_.hadamard(hadamards_.args(o.order), value(o.x) + r * n, n, value(o.out) + r * n);
}

void Executor::row(const op::StoreKv& o, std::int64_t r) {
  const std::int64_t n = width(o.k);
  const Row& at = rows_[to_size(r)];
  if (at.shadow) return;
  CpuKvCache& kv = cache(at.sequence);
  const KvShape shape = kv.shape(o.layer);
  const std::int64_t offset = at.position * kv.position_bytes(o.layer);
  const auto encode_key = kv.plain_keys() ? kernels_.encode : kernels_.encode_key;
  for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
    const std::int64_t from = r * n + head * shape.head_dim;
    encode_key(kv.type(), value(o.k) + from, shape.head_dim, kv.k(o.layer, head) + offset);
    kernels_.encode(kv.type(), value(o.v) + from, shape.head_dim, kv.v(o.layer, head) + offset);
  }
}

void Executor::run(const op::Attention& o) { attention_.run(o, value(o.q), value(o.out)); }

void Executor::run(const op::Route& o) {
  if (o.capacity > 0) {
    route_blocks_.clear();
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const Row &row = rows_[r], &before = rows_[r == 0 ? 0 : r - 1];
      if (r == 0 || !row.pools_with(before, o.block)) route_blocks_.push_back(static_cast<std::int64_t>(r));
    }
    route_blocks_.push_back(static_cast<std::int64_t>(rows_.size()));
  }
  route_.run(o, {.experts = width(o.logits),
                 .rows = rows(o.logits),
                 .logits = first_value(o.logits),
                 .bias = vector(o.bias),
                 .scale = vector(o.expert_scale),
                 .runs = route_blocks_,
                 .out = first_value(o.out)});
}

void Executor::run(const op::Experts& o) {
  const ExpertArgs args{.gate = stack(o.gate),
                        .up = stack(o.up),
                        .down = stack(o.down),
                        .x = first_value(o.x),
                        .rows = rows(o.x),
                        .value = o.x,
                        .route = value(o.route) + first_row(o.x) * width(o.route),
                        .used = width(o.route) / 2,
                        .activation = o.activation,
                        .hadamard = hadamards_.args(o.hadamard),
                        .parts = o.parts,
                        .ranks = &gather_};
  if (args.rows > 0) experts_.run(args, first_value(o.out));
}

void Executor::row(const op::Glu& o, std::int64_t r) {
  const std::int64_t n = width(o.out);
  if (o.activation != Activation::kSilu && o.activation != Activation::kGeluTanh)
    return activate(o.activation, value(o.gate) + r * n, o.up == kNoId ? ones_.data() : value(o.up) + r * n, n,
                    value(o.out) + r * n);
  const auto gated = o.activation == Activation::kGeluTanh ? kernels_.geglu : kernels_.swiglu;
  gated(value(o.gate) + r * n, o.up == kNoId ? ones_.data() : value(o.up) + r * n, n, value(o.out) + r * n);
}

void Executor::row(const op::Scale& o, std::int64_t r) {
  const bool canvas = rows_[to_size(r)].region == Region::kCanvas;
  const float* const weight = vector(canvas ? o.canvas : o.context);
  const float factor = weight == nullptr ? o.factor : o.factor * *weight;
  const std::int64_t n = width(o.out);
  const float* x = value(o.x) + r * n;
  float* out = value(o.out) + r * n;
  for (std::int64_t i = 0; i < n; ++i) out[i] = factor * x[i];
}

void Executor::row(const op::Select& o, std::int64_t r) {
  const bool canvas = rows_[to_size(r)].region == Region::kCanvas;
  const std::int64_t n = width(o.out);
  // Source and result may be the same memory.
  std::memmove(value(o.out) + r * n, value(canvas ? o.canvas : o.context) + r * n, to_size(n) * sizeof(float));
}

void Executor::row(const op::Add& o, std::int64_t r) {
  const std::int64_t n = width(o.out);
  kernels_.add(value(o.a) + r * n, value(o.b) + r * n, n, value(o.out) + r * n);
}

}  // namespace dllm::cpu
