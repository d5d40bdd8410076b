#include "quant/canvas_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "base/parallel.h"
#include "base/to_size.h"
#include "graph/rope.h"
#include "numerics/tensor_type.h"

namespace dllm {

CanvasChunk::CanvasChunk(std::span<const CalibrationCanvas> all) : canvases(all) {
  first_rows.push_back(0);
  for (const CalibrationCanvas& canvas : canvases)
    first_rows.push_back(first_rows.back() + static_cast<std::int64_t>(canvas.tokens.size()));
}

std::vector<std::span<const CalibrationCanvas>> canvas_groups(std::span<const CalibrationCanvas> all) {
  constexpr std::size_t kChunkRows = 128;
  std::vector<std::span<const CalibrationCanvas>> groups;
  for (std::size_t first = 0, end = 0; first < all.size(); first = end) {
    std::size_t rows = 0;
    while (end < all.size() && (end == first || rows < kChunkRows)) rows += all[end++].tokens.size();
    groups.push_back(all.subspan(first, end - first));
  }
  return groups;
}

Expected<void> CanvasRunner::check(const Graph& graph) {
  for (const Op& any : graph.ops) {
    std::string_view missing;
    if (std::holds_alternative<op::Select>(any)) missing = "two regions";
    if (const auto* scale = std::get_if<op::Scale>(&any); scale != nullptr && scale->context != scale->canvas)
      missing = "two regions";
    if (std::holds_alternative<op::HiddenIn>(any) || std::holds_alternative<op::BlockConv>(any) ||
        std::holds_alternative<op::LayerNorm>(any))
      missing = beyond_plain(any);
    if (const auto* attention = std::get_if<op::Attention>(&any); attention != nullptr && attention->window > 0)
      missing = "a window of attention";
    if (const auto* embed = std::get_if<op::Embed>(&any); embed != nullptr && embed->part != EmbedPart::kRow)
      missing = "two regions";
    if (!missing.empty())
      return Error{ErrorCode::kUnsupported, fmt::format("calibration does not support {}", missing), "--method",
                   "rtn and x-clip need no calibration"};
  }
  return {};
}

std::vector<float> CanvasRunner::vector(WeightId id) const {
  std::vector<float> values;
  if (id == kNoId || !weight(id).present()) return values;
  values.resize(to_size(weight(id).shape[0]));
  decode_weight_row(weight(id), 0, values);
  return values;
}

ActivationRows& CanvasRunner::add(CanvasChunk& chunk, ValueId id, std::int64_t rows) const {
  ActivationRows& out = chunk.values[id];
  out.width = graph_.value(id).width;
  out.values.assign(to_size(rows * out.width), 0.0f);
  return out;
}

void CanvasRunner::run(CanvasChunk& chunk, std::int64_t first, std::int64_t end) const {
  for (std::int64_t i = first; i < end; ++i) std::visit([&](const auto& o) { run(chunk, o); }, graph_.ops[to_size(i)]);
}

void CanvasRunner::run(CanvasChunk& chunk, const op::Embed& o) const {
  ActivationRows& out = add(chunk, o.out, chunk.first_rows.back());
  std::int64_t r = 0;
  for (const CalibrationCanvas& canvas : chunk.canvases)
    for (const TokenId token : canvas.tokens) {
      const std::span<float> row(out.row(r++), to_size(out.width));
      decode_weight_row(weight(o.table), token, row);
      for (float& x : row) x *= o.scale;
    }
}

void CanvasRunner::run(CanvasChunk& chunk, const op::RmsNorm& o) const {
  const ActivationRows& x = chunk.values.at(o.x);
  ActivationRows& out = add(chunk, o.out, x.rows());
  const std::vector<float> gain = vector(o.gain);
  const std::int64_t n = x.width / o.groups;
  parallel_items(pool_, x.rows() * o.groups, 4 * n, [&](std::int64_t item, int) {
    const float* const from = x.values.data() + item * n;
    float* const to = out.values.data() + item * n;
    const float factor = 1.0f / std::sqrt(dot(from, from, n) / static_cast<float>(n) + o.eps);
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i] * factor * (gain.empty() ? 1.0f : gain[to_size(i)]);
  });
}

void CanvasRunner::run(CanvasChunk& chunk, const op::Linear& o) const {
  const ActivationRows& x = chunk.values.at(o.x);
  ActivationRows& out = add(chunk, o.out, x.rows());
  multiply_rows(weight(o.weight), vector(o.bias), x.values, out.values, pool_);
}

void CanvasRunner::run(CanvasChunk& chunk, const op::Rope& o) const {
  const ActivationRows& x = chunk.values.at(o.x);
  ActivationRows& out = add(chunk, o.out, x.rows());
  out.values = x.values;
  const std::vector<float> frequencies = rope_frequencies(o, vector(o.factors));
  const bool interleaved = o.layout == RopeLayout::kInterleaved;
  const std::int64_t half = o.dims / 2;
  for (std::size_t c = 0; c < chunk.canvases.size(); ++c)
    for (std::int64_t r = chunk.first_rows[c]; r < chunk.first_rows[c + 1]; ++r) {
      const auto position = static_cast<Position>(r - chunk.first_rows[c]);
      const double magnitude = rope_magnitude(o, position);
      for (std::int64_t j = 0; j < half; ++j) {
        const auto angle = static_cast<double>(static_cast<float>(position) * frequencies[to_size(j)]);
        const auto cos = static_cast<float>(magnitude * std::cos(angle));
        const auto sin = static_cast<float>(magnitude * std::sin(angle));
        for (std::int64_t head = 0; head < o.heads; ++head) {
          const std::int64_t first = head * o.head_dim;
          float& a = out.row(r)[first + (interleaved ? 2 * j : j)];
          float& b = out.row(r)[first + (interleaved ? 2 * j + 1 : j + half)];
          const float low = a, high = b;
          a = low * cos - high * sin;
          b = high * cos + low * sin;
        }
      }
    }
}

void CanvasRunner::run(CanvasChunk& chunk, const op::Hadamard& o) const {
  const ActivationRows& x = chunk.values.at(o.x);
  ActivationRows& out = add(chunk, o.out, x.rows());
  out.values = x.values;
  transform_rows(o.order, out.values, pool_);
}

void CanvasRunner::run(CanvasChunk& chunk, const op::StoreKv& o) const { chunk.stored[o.layer] = {o.k, o.v}; }

void CanvasRunner::run(CanvasChunk& chunk, const op::Attention& o) const {
  const ActivationRows& q = chunk.values.at(o.q);
  const ActivationRows& k = chunk.values.at(chunk.stored.at(o.layer).first);
  const ActivationRows& v = chunk.values.at(chunk.stored.at(o.layer).second);
  ActivationRows& out = add(chunk, o.out, q.rows());
  const std::int64_t group = o.heads / o.kv_heads, d = o.head_dim;
  const auto canvases = static_cast<std::int64_t>(chunk.canvases.size());
  parallel(pool_, canvases * o.heads, [&](std::int64_t task, int) {
    thread_local std::vector<float> scores;
    const std::int64_t head = task % o.heads, kv = head / group * d;
    const auto canvas = to_size(task / o.heads);
    const std::int64_t first = chunk.first_rows[canvas], end = chunk.first_rows[canvas + 1];
    for (std::int64_t r = first; r < end; ++r) {
      std::int64_t seen = end - first;
      if (causal_block_ > 0) seen = std::min(seen, ((r - first) / causal_block_ + 1) * causal_block_);
      scores.resize(to_size(seen));
      float top = -HUGE_VALF, sum = 0;
      for (std::int64_t j = 0; j < seen; ++j) {
        float& score = scores[to_size(j)];
        score = dot(q.row(r) + head * d, k.row(first + j) + kv, d) * o.scale;
        top = std::max(top, score);
      }
      for (float& score : scores) sum += score = std::exp(score - top);
      float* const to = out.row(r) + head * d;
      for (std::int64_t j = 0; j < seen; ++j) {
        const float share = scores[to_size(j)] / sum;
        const float* const from = v.row(first + j) + kv;
        for (std::int64_t i = 0; i < d; ++i) to[i] += share * from[i];
      }
    }
  });
}

void CanvasRunner::run(CanvasChunk& chunk, const op::Glu& o) const {
  const ActivationRows& gate = chunk.values.at(o.gate);
  ActivationRows& out = add(chunk, o.out, gate.rows());
  std::span<const float> up;
  if (o.up != kNoId) up = chunk.values.at(o.up).values;
  gated(o.activation == Activation::kGeluTanh, gate.values, up, gate.width, out.values, pool_);
}

void CanvasRunner::run(CanvasChunk& chunk, const op::Add& o) const {
  const ActivationRows &a = chunk.values.at(o.a), &b = chunk.values.at(o.b);
  ActivationRows& out = add(chunk, o.out, a.rows());
  for (std::size_t i = 0; i < out.values.size(); ++i) out.values[i] = a.values[i] + b.values[i];
}

void CanvasRunner::run(CanvasChunk& chunk, const op::Scale& o) const {
  const ActivationRows& x = chunk.values.at(o.x);
  ActivationRows& out = add(chunk, o.out, x.rows());
  const std::vector<float> number = vector(o.canvas);
  const float factor = o.factor * (number.empty() ? 1.0f : number.front());
  for (std::size_t i = 0; i < out.values.size(); ++i) out.values[i] = factor * x.values[i];
}

void CanvasRunner::run(CanvasChunk& chunk, const op::GatherScored& o) const {
  const ActivationRows& x = chunk.values.at(o.x);
  std::int64_t rows = 0, target = 0;
  for (const CalibrationCanvas& canvas : chunk.canvases) rows += static_cast<std::int64_t>(canvas.scored.size());
  ActivationRows& out = add(chunk, o.out, rows);
  for (std::size_t c = 0; c < chunk.canvases.size(); ++c)
    for (const std::int32_t i : chunk.canvases[c].scored)
      std::copy_n(x.row(chunk.first_rows[c] + i), x.width, out.row(target++));
}

}  // namespace dllm
