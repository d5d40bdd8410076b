#include "npu_backend/accuracy/executor.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <variant>
#include <vector>

#include "base/parallel.h"
#include "base/to_size.h"
#include "graph/rope.h"
#include "npu_backend/accuracy/lane_kernel.h"
#include "numerics/hadamard.h"

namespace dllm::npu::accuracy {

Executor::Executor(const Graph& graph, const ModelLayout& layout, const Weights& weights,
                   const NumericsProfile& profile, int threads, const std::function<bool(double)>& progress)
    : layout_(layout), weights_(weights), profile_(profile), pool_(threads) {
  const MachineConfig& m = layout.machine;
  const auto rule = [&](const OperandFormat& w) { return WindowRule::of(profile.activation, w, m.contraction_bits); };
  product_ = {profile.activation, profile.weight, rule(profile.weight), m.mlen};
  for (const dllm::Op& any : graph.ops) {
    const auto* kv = std::get_if<op::StoreKv>(&any);
    if (kv == nullptr) continue;
    const LaneMap lanes = map(kv->k);
    HeadShape& s = heads_[kv->layer];
    s.kv_heads = lanes.width / lanes.head_dim;
    s.head_dim = lanes.head_dim;
    s.slot = lanes.hlen;
    s.key_tile = npu::key_tile(sram_shape(m), lanes.head_dim);
    s.keys_at_once = lanes.head_dim > m.hlen ? m.mlen : s.key_tile;
    s.qk = {profile.activation, profile.key, rule(profile.key), m.hlen};
    s.pv = {profile.activation, profile.value, rule(profile.value), m.mlen};
    s.contraction = Contraction(
        {.width = lanes.head_dim, .head_dim = lanes.head_dim, .hlen = lanes.hlen, .interleaved = lanes.interleaved},
        s.qk);
  }
  pack(graph, progress);
}

void Executor::pack(const Graph& graph, const std::function<bool(double)>& progress) {
  std::vector<std::pair<WeightId, LaneMap>> wanted;
  std::int64_t all = 0, done = 0;
  const auto want = [&](WeightId id, const LaneMap& in) {
    if (!matrices_.try_emplace(id).second) return;
    wanted.emplace_back(id, in);
    all += element_count(weight(id).shape);
  };
  for (const dllm::Op& any : graph.ops) {
    if (const auto* linear = std::get_if<op::Linear>(&any)) want(linear->weight, map(linear->x));
    if (const auto* head = std::get_if<op::ScoreHead>(&any)) want(head->weight, map(head->x));
    if (const auto* experts = std::get_if<op::Experts>(&any)) {
      want(experts->gate, map(experts->x));
      want(experts->up, map(experts->x));
      want(experts->down, {.width = weight(experts->gate).shape[1]});
    }
  }
  for (const auto& [id, in] : wanted) {
    const Shape& shape = weight(id).shape;
    const std::int64_t outputs = shape[1], elements = shape[0] * outputs, count = element_count(shape) / elements;
    for (std::int64_t e = 0; e < count; ++e, done += elements) {
      if (progress && !progress(static_cast<double>(done) / static_cast<double>(all))) throw Stopped();
      matrices_.at(id).push_back(Matrix::pack(weight(id), e * outputs, outputs, in, product_, pool_));
    }
  }
}

const std::vector<float>& Executor::vector(WeightId id) {
  const auto [at, fresh] = vectors_.try_emplace(id);
  if (fresh && present(id)) {
    at->second = weight_row(weight(id), 0);
    round_lanes(profile_.vector, at->second);
  }
  return at->second;
}

void Executor::begin(const Graph& graph, std::span<const SequenceStep> batch) {
  batch_ = batch;
  rows_.clear();
  first_rows_.clear();
  for (std::size_t s = 0; s < batch.size(); ++s) {
    first_rows_.push_back(static_cast<std::int64_t>(rows_.size()));
    for (const PlanRow& row : batch[s].plan.rows) rows_.push_back({s, row.position, row.token, false});
    for (const ShadowRow& shadow : batch[s].plan.shadows)
      rows_.push_back({s, shadow.row.position, shadow.row.token, true});
  }
  first_rows_.push_back(static_cast<std::int64_t>(rows_.size()));
  shared_ = branch_rows(batch);
  for (const BranchRows::Copy& copy : shared_.copies) {
    std::vector<Position> positions(to_size(copy.rows.size()));
    std::iota(positions.begin(), positions.end(), copy.rows.begin);
    static_cast<LaneKvCache&>(*copy.to).copy_values(static_cast<const LaneKvCache&>(*copy.from), positions);
  }
  values_.resize(graph.values.size());
  for (std::size_t i = 0; i < values_.size(); ++i) values_[i].reset(graph.values[i].rows, row_lanes(layout_.values[i]));
  operand_of_ = kNoId;
  logits_.clear();
  hidden_.clear();
  hidden_columns_ = hidden_width(graph);
}

std::vector<float> Executor::forward(const Graph& graph, std::span<const SequenceStep> batch) {
  begin(graph, batch);
  for (const dllm::Op& any : graph.ops) std::visit([this](const auto& o) { run(o); }, any);
  return std::move(logits_);
}

const OperandRows& Executor::operand(ValueId id, const Contraction& contraction) {
  if (operand_of_ == id) return operand_;
  const LaneRows& x = value(id);
  operand_.reset(x.rows, contraction);
  parallel_items(pool_, x.rows, 8 * x.stride, [&](std::int64_t r, int) {
    thread_local Operand row;
    quantize(profile_.activation, product_.rule.integers(), x.lanes(r), row);
    contraction.gather(row, profile_.activation.block(), operand_.a.data() + r * operand_.terms,
                       operand_.exponents.data() + r * operand_.groups);
    operand_.lay_bytes(r);
  });
  operand_of_ = id;
  return operand_;
}

template <class RowOf>
void Executor::multiply(const OperandRows& x, const Matrix& matrix, const std::vector<float>& bias, const LaneMap& to,
                        const RowOf& row) {
  parallel_items(pool_, matrix.panels(), x.rows * x.terms * kPanel / 8, [&](std::int64_t panel, int) {
    thread_local std::vector<double> sums;
    sums.resize(to_size(x.rows * kPanel));
    matrix.multiply(x, panel, sums.data());
    const std::int64_t count = std::min(kPanel, matrix.outputs() - panel * kPanel);
    std::int64_t lanes[kPanel];
    bool adjacent = bias.empty();
    for (std::int64_t i = 0; i < count; ++i) {
      lanes[i] = to.lane(panel * kPanel + i);
      adjacent = adjacent && lanes[i] == lanes[0] + i;
    }
    for (std::int64_t r = 0; r < x.rows; ++r) {
      float* const out = row(r);
      if (adjacent) {
        lane_kernel().round_sums(profile_.vector, sums.data() + r * kPanel, count, out + lanes[0]);
        continue;
      }
      for (std::int64_t i = 0; i < count; ++i) {
        const float product = round(sums[to_size(r * kPanel + i)]);
        out[lanes[i]] = bias.empty() ? product : round(product + bias[to_size(panel * kPanel + i)]);
      }
    }
  });
}

void Executor::run(const op::Embed& o) {
  if (o.part == EmbedPart::kMixture) return run_mixture(o);
  const float scale = round(o.scale);
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::vector<float> row = weight_row(weight(o.table), rows_[r].token);
    round_lanes(profile_.vector, row);
    if (o.scale != 1.f)
      for (float& lane : row) lane = round(lane * scale);
    std::ranges::copy(row, value(o.out).row(static_cast<std::int64_t>(r)));
  }
}

void Executor::run(const op::RmsNorm& o) {
  const LaneMap& lanes_of = map(o.x);
  const std::vector<float>& gain = vector(o.gain);
  const std::int64_t n = lanes_of.width / o.groups, vlen = layout_.machine.vlen;
  const float shrink = norm_shrink(profile_.vector == VectorPrecision::kF16 ? LaneFormat::kF16 : LaneFormat::kBf16);
  const float inverse = round(1.0f / (shrink * static_cast<float>(n))), eps = round(o.eps);
  const bool heads = o.groups > 1;
  parallel_items(pool_, value(o.x).rows, 8 * lanes_of.width, [&](std::int64_t r, int) {
    const std::span<const float> x = value(o.x).lanes(r);
    float* out = value(o.out).row(r);
    thread_local std::vector<float> squares, scaled;
    squares.resize(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) squares[i] = x[i] * shrink;
    round_lanes(profile_.vector, squares);
    for (std::size_t i = 0; i < x.size(); ++i) squares[i] *= x[i];
    round_lanes(profile_.vector, squares);
    for (std::int64_t g = 0; g < o.groups; ++g) {
      const std::int64_t first = heads ? lanes_of.lane(g * n) : 0, count = heads ? lanes_of.hlen : lanes_of.used();
      float running = 0;
      for (std::int64_t at = first; at < first + count; at += vlen)
        running = sum_tree(
            std::span<const float>(squares).subspan(to_size(at), to_size(std::min(vlen, first + count - at))), running);
      const float mean = round(round(running) * inverse);
      const float factor = vector_reciprocal(profile_.vector, vector_sqrt(profile_.vector, round(mean + eps)));
      const auto lane_of = [&](std::int64_t i) { return heads ? first + lanes_of.lane_in_head(i) : lanes_of.lane(i); };
      scaled.resize(to_size(n));
      const std::span<float> row(scaled);
      for (std::int64_t i = 0; i < n; ++i) row[to_size(i)] = x[to_size(lane_of(i))] * factor;
      round_lanes(profile_.vector, row);
      if (!gain.empty()) {
        for (std::size_t i = 0; i < row.size(); ++i) row[i] *= gain[i];
        round_lanes(profile_.vector, row);
      }
      for (std::int64_t i = 0; i < n; ++i) out[lane_of(i)] = row[to_size(i)];
    }
  });
}

void Executor::run(const op::Linear& o) {
  const Matrix& matrix = matrices_.at(o.weight).front();
  LaneRows& out = value(o.out);
  multiply(operand(o.x, matrix.contraction()), matrix, vector(o.bias), map(o.out),
           [&](std::int64_t r) { return out.row(r); });
}

void Executor::run(const op::ScoreHead& o) {
  const Matrix& matrix = matrices_.at(o.weight).front();
  const std::int64_t vocab = matrix.outputs();
  logits_.resize(to_size(value(o.x).rows * vocab));
  if (logits_.empty()) return;
  multiply(operand(o.x, matrix.contraction()), matrix, vector(o.bias), LaneMap{.width = vocab},
           [&](std::int64_t r) { return logits_.data() + r * vocab; });
  if (o.softcap != 0.f) cap(o.softcap);
}

const Executor::RopeRow& Executor::rope_row(const op::Rope& o, Position position) {
  std::size_t place = 0;
  while (!layout_.ropes[place].serves(o)) ++place;
  const auto [at, fresh] = ropes_.try_emplace({place, position});
  RopeRow& row = at->second;
  if (!fresh) return row;
  const std::vector<float> factors = present(o.factors) ? weight_row(weight(o.factors), 0) : std::vector<float>();
  const double magnitude = rope_magnitude(o, position);
  for (const float frequency : rope_frequencies(o, factors)) {
    // Angles in double, rounded once.
    const auto angle = static_cast<double>(static_cast<float>(position) * frequency);
    row.cos.push_back(round(magnitude * std::cos(angle)));
    row.sin.push_back(round(magnitude * std::sin(angle)));
  }
  return row;
}

void Executor::run(const op::Rope& o) {
  const LaneMap& lanes_of = map(o.out);
  const std::int64_t half = o.dims / 2;
  const bool interleaved = o.layout == RopeLayout::kInterleaved;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const RopeRow& turn = rope_row(o, rows_[r].position);
    const float* x = value(o.x).row(static_cast<std::int64_t>(r));
    float* out = value(o.out).row(static_cast<std::int64_t>(r));
    for (std::int64_t head = 0; head < o.heads; ++head) {
      const std::int64_t first = lanes_of.first_lane(head);
      for (std::int64_t d = o.dims; d < o.head_dim; ++d) {
        const std::int64_t lane = first + lanes_of.lane_in_head(d);
        out[lane] = x[lane];
      }
      for (std::int64_t j = 0; j < half; ++j) {
        const std::int64_t a = first + lanes_of.lane_in_head(interleaved ? 2 * j : j),
                           b = first + lanes_of.lane_in_head(interleaved ? 2 * j + 1 : j + half);
        const auto pair = to_size(j);
        out[a] = round(round(x[a] * turn.cos[pair]) + round(x[b] * -turn.sin[pair]));
        out[b] = round(round(x[b] * turn.cos[pair]) + round(x[a] * turn.sin[pair]));
      }
    }
  }
}

void Executor::hadamard_lanes(std::int32_t order, std::span<float> lanes) const {
  const Hadamard matrix = *Hadamard::online(order);  // of a valid graph
  const auto n = to_size(order);
  for (std::size_t at = 0; at + n <= lanes.size(); at += n) matrix.apply(lanes.subspan(at, n));
  round_lanes(profile_.vector, lanes);
}

/// Of heads in the order of their lanes, in which interleaved RoPE's pairs are apart: any orthonormal matrix will do,
/// if it is the same for queries and keys.
void Executor::run(const op::Hadamard& o) {
  const LaneMap& lanes_of = map(o.out);
  value(o.out).clear();
  parallel_items(pool_, value(o.x).rows, 16 * lanes_of.width, [&](std::int64_t r, int) {
    const std::int64_t slice = lanes_of.heads() ? lanes_of.head_dim : lanes_of.width;
    for (std::int64_t first = 0; first < lanes_of.width; first += slice) {
      const std::int64_t lane = lanes_of.lane(first);
      std::copy_n(value(o.x).row(r) + lane, slice, value(o.out).row(r) + lane);
      hadamard_lanes(o.order, {value(o.out).row(r) + lane, to_size(slice)});
    }
  });
}

void Executor::store_rows(const op::StoreKv& o, std::size_t sequence) {
  auto& cache = static_cast<LaneKvCache&>(*batch_[sequence].cache);
  const std::int64_t first = first_rows_[sequence];
  const std::int64_t end = first + static_cast<std::int64_t>(batch_[sequence].plan.rows.size());
  if (profile_.smoothing.any() && first < end) {
    std::int64_t seen = 0;
    for (const PositionRange& range : batch_[sequence].plan.visible) seen += range.size();
    if (takes_statistics(end - first, seen) || !cache.has_segment(o.layer))
      cache.begin_segment(o.layer, value(o.k), value(o.v), first, end);
  }
  for (std::int64_t r = first; r < end; ++r)
    cache.store(o.layer, rows_[to_size(r)].position, value(o.k).lanes(r), value(o.v).lanes(r));
}

void Executor::run(const op::StoreKv& o) {
  for (std::size_t s = 0; s < batch_.size(); ++s) store_rows(o, s);
  for (const BranchRows::Store& one : shared_.stores) {
    const std::int64_t r = first_rows_[one.step] + static_cast<std::int64_t>(one.row);
    static_cast<LaneKvCache&>(*one.to).store(o.layer, rows_[to_size(r)].position, value(o.k).lanes(r),
                                             value(o.v).lanes(r));
  }
}

void Executor::glu_row(const float* gate, const float* up, std::int64_t n, float* out) const {
  const auto count = to_size(n);
  const std::span<float> lanes(out, count);
  for (std::size_t i = 0; i < count; ++i) lanes[i] = 0.0f - gate[i];
  exp_lanes(profile_.vector, lanes);
  for (float& lane : lanes) lane += 1.0f;
  round_lanes(profile_.vector, lanes);
  reciprocal_lanes(profile_.vector, lanes);
  for (std::size_t i = 0; i < count; ++i) lanes[i] *= gate[i];
  round_lanes(profile_.vector, lanes);
  for (std::size_t i = 0; i < count; ++i) lanes[i] *= up[i];
  round_lanes(profile_.vector, lanes);
}

void Executor::run(const op::Glu& o) {
  parallel_items(pool_, value(o.out).rows, 16 * map(o.out).width, [&](std::int64_t r, int) {
    if (o.activation == Activation::kSilu && o.up != kNoId)
      glu_row(value(o.gate).row(r), value(o.up).row(r), map(o.out).width, value(o.out).row(r));
    else
      activation_row(o.activation, value(o.gate).row(r), o.up == kNoId ? nullptr : value(o.up).row(r), map(o.out).width,
                     value(o.out).row(r));
  });
}

void Executor::run(const op::Add& o) {
  const std::int64_t n = map(o.out).used();  // lanes: a head may have more than it has columns
  for (std::int64_t r = 0; r < value(o.out).rows; ++r) {
    const float *a = value(o.a).row(r), *b = value(o.b).row(r);
    float* out = value(o.out).row(r);
    std::copy_n(a, n, out);
    lane_kernel().add(profile_.vector, out, b, n);
  }
}

void Executor::run(const op::GatherScored& o) {
  std::int64_t target = 0;
  for (std::size_t s = 0; s < batch_.size(); ++s)
    for (const std::int32_t i : batch_[s].plan.scored)
      std::ranges::copy(value(o.x).lanes(first_rows_[s] + i), value(o.out).row(target++));
}

}  // namespace dllm::npu::accuracy
