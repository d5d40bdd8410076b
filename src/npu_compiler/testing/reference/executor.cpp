#include "npu_compiler/testing/reference/executor.h"

#include <algorithm>
#include <cmath>

#include "base/to_size.h"
#include "graph/rope.h"
#include "npu_compiler/compiler/stored_codes.h"
#include "numerics/hadamard.h"
#include "numerics/tensor_type.h"

namespace dllm::npu::reference {
namespace {

std::vector<float> widen(const std::vector<Bf16>& lanes) {
  std::vector<float> result;
  for (const Bf16 lane : lanes) result.push_back(bf16_to_f32(lane));
  return result;
}

Bf16 round(float value) { return f32_to_bf16(value); }

}  // namespace

StepResult Executor::run(const Graph& graph, const StepSpec& spec, const std::vector<TokenId>& tokens,
                         const std::vector<Cache*>& caches, const std::vector<float>& hidden) {
  hidden_ = hidden;
  graph_ = &graph;
  spec_ = &spec;
  caches_ = &caches;
  rows_.clear();
  for (std::size_t s = 0; s < spec.sequences.size(); ++s)
    for (std::size_t i = 0; i < spec.sequences[s].positions.size(); ++i)
      rows_.push_back({s, i, spec.sequences[s].positions[i], tokens[rows_.size()]});
  result_ = {};
  for (std::size_t i = 0; i < graph.values.size(); ++i)
    result_.values.emplace_back(to_size(graph.values[i].rows), std::vector<Bf16>(lanes(layout_.values[i]), Bf16{0}));
  for (const dllm::Op& any : graph.ops) std::visit([this](const auto& o) { run(o); }, any);
  return std::move(result_);
}

std::vector<float> Executor::weight_row(WeightId id, std::int64_t row) const {
  const WeightView& view = weights_[to_size(id)];
  const Codec& format = codec(view.type);
  std::vector<float> values(to_size(view.shape[0]));
  format.dequantize(view.data.data() + row * format.row_bytes(view.shape[0]), values.data(), view.shape[0]);
  return values;
}

const std::vector<QuantizedRow>& Executor::matrix(WeightId id, const LaneMap& in) {
  std::vector<QuantizedRow>& rows = matrices_[id];
  if (!rows.empty()) return rows;
  const WeightView& view = weights_[to_size(id)];
  const Shape& shape = view.shape;
  const bool stored = keeps_codes(view, in, m_.weight);
  LaneCodes codes;
  for (std::int64_t n = 0; n < element_count(shape) / shape[0]; ++n) {
    if (stored) {
      codes.reset(m_.weight, static_cast<std::int64_t>(lanes(in)));
      lay_codes(view, n, in, m_.weight, 0, codes);
      rows.push_back(quantized_row(m_.weight, codes.codes, codes.scales));
      continue;
    }
    const std::vector<float> values = weight_row(id, n);
    std::vector<float> laid(lanes(in), 0.0f);
    for (std::size_t k = 0; k < values.size(); ++k) laid[to_size(in.lane(static_cast<std::int64_t>(k)))] = values[k];
    rows.push_back(quantize(m_.weight, laid));
  }
  return rows;
}

/// running + the pairwise sum of lanes [first, first + count), in FP32; returns it as BF16.
Bf16 Executor::sum_tree(const std::vector<Bf16>& lanes, std::size_t first, std::size_t count, float& running) const {
  std::vector<float> sums;
  for (std::size_t i = first; i < first + count; ++i) sums.push_back(bf16_to_f32(lanes[i]));
  while (sums.size() > 1) {
    for (std::size_t i = 0; i < sums.size() / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
    sums.resize(sums.size() / 2);
  }
  running += sums[0];
  return round(running);
}

void Executor::run(const op::Embed& o) {
  if (o.part == EmbedPart::kMixture) return run(op::HiddenIn{.out = o.out, .first = 0});
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const std::vector<float> row = weight_row(o.table, rows_[r].token);
    for (std::size_t i = 0; i < row.size(); ++i)
      value(o.out)[r][i] = o.scale == 1.f ? round(row[i]) : bf16_mul(round(row[i]), round(o.scale));
  }
}

void Executor::run(const op::Scale& o) {
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const WeightId number = spec_->sequences[rows_[r].sequence].canvas ? o.canvas : o.context;
    const Bf16 by = number == kNoId ? kBf16One : round(weight_row(number, 0).front());
    for (std::size_t i = 0; i < value(o.x)[r].size(); ++i) {
      Bf16& out = value(o.out)[r][i] = bf16_mul(value(o.x)[r][i], by);
      if (o.factor != 1.f) out = bf16_mul(out, round(o.factor));
    }
  }
}

void Executor::run(const op::Select& o) {
  for (std::size_t r = 0; r < rows_.size(); ++r)
    value(o.out)[r] = value(spec_->sequences[rows_[r].sequence].canvas ? o.canvas : o.context)[r];
}

void Executor::run(const op::RmsNorm& o) {
  const LaneMap& lanes_of = map(o.x);
  const std::vector<float> gain = o.gain == kNoId ? std::vector<float>() : weight_row(o.gain, 0);
  const std::int64_t n = lanes_of.width / o.groups;
  const Bf16 inverse = round(1.0f / static_cast<float>(n)), eps = round(o.eps);
  for (std::size_t r = 0; r < value(o.x).size(); ++r) {
    const std::vector<Bf16>& x = value(o.x)[r];
    std::vector<Bf16>& out = value(o.out)[r];
    std::vector<Bf16> squares;
    for (const Bf16 lane : x) squares.push_back(bf16_mul(lane, lane));
    for (std::int64_t g = 0; g < o.groups; ++g) {
      float running = 0;
      Bf16 sum = 0;
      if (o.groups > 1 && lanes_of.hlen > m_.hlen)  // a head of whole rows of VLEN
        for (std::int64_t slab = 0; slab < lanes_of.hlen; slab += m_.vlen)
          sum = sum_tree(squares, to_size(lanes_of.lane(g * n) + slab), to_size(m_.vlen), running);
      else if (o.groups > 1)
        sum = sum_tree(squares, to_size(lanes_of.lane(g * n)), to_size(m_.hlen), running);
      else
        for (std::size_t slab = 0; slab < x.size(); slab += to_size(m_.vlen))
          sum = sum_tree(squares, slab, to_size(m_.vlen), running);
      const Bf16 factor = bf16_reciprocal(bf16_sqrt(bf16_add(bf16_mul(sum, inverse), eps)));
      for (std::int64_t i = 0; i < n; ++i) {
        const auto lane = to_size(lanes_of.lane(g * n + i));
        out[lane] = bf16_mul(x[lane], factor);
        if (!gain.empty()) out[lane] = bf16_mul(out[lane], round(gain[to_size(i)]));
      }
    }
  }
}

std::vector<Bf16> Executor::product(const std::vector<Bf16>& x, WeightId weight, WeightId bias, const LaneMap& in,
                                    std::size_t expert) {
  const std::vector<QuantizedRow>& w = matrix(weight, in);
  // The array processes MLEN lanes at a time, and K ends with the last tile that has a column.
  const auto tile = to_size(m_.mlen);
  const auto end = to_size(round_up(in.used(), m_.mlen));
  const QuantizedRow a = quantize(m_.matrix_input, widen(x));
  const auto group = to_size(std::min({m_.matrix_input.block, m_.weight.block, m_.mlen}));
  std::vector<Bf16> out;
  const auto outputs = to_size(weights_[to_size(weight)].shape[1]);
  for (std::size_t n = expert * outputs; n < (expert + 1) * outputs; ++n) {
    WindowSum sum(m_.matrix_input, m_.weight, m_.contraction_bits);
    for (std::size_t first = 0; first < end; first += tile)
      sum.add(a, first, {.row = &w[n], .first = first}, tile, group);
    out.push_back(sum.bf16());
  }
  if (bias != kNoId && weights_[to_size(bias)].present()) {
    const std::vector<float> b = weight_row(bias, 0);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = bf16_add(out[i], round(b[i]));
  }
  return out;
}

void Executor::run(const op::Linear& o) {
  for (std::size_t r = 0; r < value(o.x).size(); ++r) {
    const std::vector<Bf16> columns = product(value(o.x)[r], o.weight, o.bias, map(o.x));
    for (std::size_t i = 0; i < columns.size(); ++i)
      value(o.out)[r][to_size(map(o.out).lane(static_cast<std::int64_t>(i)))] = columns[i];
  }
}

void Executor::run(const op::ScoreHead& o) {
  for (const std::vector<Bf16>& x : value(o.x)) {
    std::vector<Bf16>& logits = result_.logits.emplace_back(product(x, o.weight, o.bias, map(o.x)));
    if (o.softcap == 0.f) continue;
    for (Bf16& z : logits) {
      const Bf16 e = bf16_exp(bf16_mul(z, round(-2.0f / o.softcap)));
      const Bf16 twice = bf16_mul(bf16_reciprocal(bf16_add(e, kBf16One)), round(2.0f));
      z = bf16_mul(bf16_sub(twice, kBf16One), round(o.softcap));
    }
  }
}

void Executor::run(const op::Rope& o) {
  std::vector<float> factors;
  if (o.factors != kNoId && weights_[to_size(o.factors)].present()) factors = weight_row(o.factors, 0);
  const std::vector<float> frequencies = rope_frequencies(o, factors);
  const std::int64_t half = o.dims / 2;
  for (std::size_t r = 0; r < rows_.size(); ++r)
    for (std::int64_t head = 0; head < o.heads; ++head) {
      const double magnitude = rope_magnitude(o, rows_[r].position);
      const std::vector<Bf16>& x = value(o.x)[r];
      std::vector<Bf16>& out = value(o.out)[r];
      for (std::int64_t d = o.dims; d < o.head_dim; ++d) {
        const auto lane = to_size(map(o.x).lane(head * o.head_dim + d));
        out[lane] = bf16_add(bf16_mul(x[lane], kBf16One), 0);
      }
      for (std::int64_t j = 0; j < half; ++j) {
        const bool interleaved = o.layout == RopeLayout::kInterleaved;
        const auto a = to_size(map(o.x).lane(head * o.head_dim + (interleaved ? 2 * j : j))),
                   b = to_size(map(o.x).lane(head * o.head_dim + (interleaved ? 2 * j + 1 : j + half)));
        // Angles in double, rounded once.
        const auto angle = static_cast<double>(static_cast<float>(rows_[r].position) * frequencies[to_size(j)]);
        const Bf16 cos = f64_to_bf16(magnitude * std::cos(angle)), sin = f64_to_bf16(magnitude * std::sin(angle));
        const Bf16 minus = static_cast<Bf16>(sin ^ 0x8000);
        out[a] = bf16_add(bf16_mul(x[a], cos), bf16_mul(x[b], minus));
        out[b] = bf16_add(bf16_mul(x[b], cos), bf16_mul(x[a], sin));
      }
    }
}

void Executor::turn(std::vector<Bf16>& lanes, std::int64_t first, std::int32_t order) {
  const auto begin = lanes.begin() + first;
  std::vector<float> x = widen({begin, begin + order});
  Hadamard::online(order)->apply(std::span(x));
  std::ranges::transform(x, begin, round);
}

/// Of lanes, so that interleaved pairs are apart.
void Executor::run(const op::Hadamard& o) {
  const LaneMap& lanes_of = map(o.out);
  const std::int64_t slice = lanes_of.heads() ? lanes_of.head_dim : lanes_of.width;
  value(o.out) = value(o.x);
  for (std::vector<Bf16>& row : value(o.out))
    for (std::int64_t first = 0; first < lanes_of.width; first += o.order)
      turn(row, lanes_of.lane(first - first % slice) + first % slice, o.order);
}

void Executor::run(const op::StoreKv& o) {
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    Cache& cache = *(*caches_)[rows_[r].sequence];
    cache.k[{o.layer, rows_[r].position}] = quantize(m_.vector_kv, widen(value(o.k)[r]));
    cache.v[{o.layer, rows_[r].position}] = quantize(m_.vector_kv, widen(value(o.v)[r]));
  }
}

void Executor::run(const op::Glu& o) {
  if (o.activation != Activation::kSilu || o.up == kNoId) return run_activation(o);
  for (std::size_t r = 0; r < value(o.out).size(); ++r)
    for (std::size_t i = 0; i < to_size(map(o.out).width); ++i) {
      const Bf16 gate = value(o.gate)[r][i];
      const Bf16 sigmoid = bf16_reciprocal(bf16_add(bf16_exp(bf16_sub(0, gate)), kBf16One));
      value(o.out)[r][i] = bf16_mul(bf16_mul(sigmoid, gate), value(o.up)[r][i]);
    }
}

void Executor::run(const op::Add& o) {
  for (std::size_t r = 0; r < value(o.out).size(); ++r)
    for (std::size_t i = 0; i < to_size(map(o.out).width); ++i)
      value(o.out)[r][i] = bf16_add(value(o.a)[r][i], value(o.b)[r][i]);
}

void Executor::run(const op::GatherScored& o) {
  std::size_t target = 0, first = 0;
  for (const SequenceSpec& s : spec_->sequences) {
    for (const std::int32_t i : s.scored) value(o.out)[target++] = value(o.x)[first + to_size(i)];
    first += s.positions.size();
  }
}

Prediction reduce_logits(const std::vector<Bf16>& logits, std::size_t vlen) {
  Prediction result;
  Bf16 maximum = 0xff80, sum = 0;
  for (std::size_t first = 0; first < logits.size(); first += vlen) {
    const std::size_t end = std::min(first + vlen, logits.size());
    const Bf16 before = maximum;
    for (std::size_t i = first; i < end; ++i)
      if (order_key(logits[i]) > order_key(maximum)) {
        maximum = logits[i];
        result.token = static_cast<std::uint32_t>(i);
      }
    sum = bf16_mul(sum, bf16_exp(bf16_sub(before, maximum)));
    std::vector<float> tree(vlen, 0.0f);
    for (std::size_t i = first; i < end; ++i) tree[i - first] = bf16_to_f32(bf16_exp(bf16_sub(logits[i], maximum)));
    for (std::size_t n = vlen / 2; n > 0; n /= 2)
      for (std::size_t i = 0; i < n; ++i) tree[i] = tree[2 * i] + tree[2 * i + 1];
    sum = round(bf16_to_f32(sum) + tree[0]);
  }
  result.confidence = bf16_reciprocal(sum);
  return result;
}

}  // namespace dllm::npu::reference
