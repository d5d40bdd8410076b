// Routing and experts of a calibration, in float32.
#include "quant/canvas_experts.h"

#include <algorithm>
#include <cmath>

#include "base/to_size.h"
#include "graph/expert_choice.h"
#include "numerics/tensor_type.h"
#include "quant/canvas_runner.h"

namespace dllm {
namespace {

/// Scores of a row, and the keys by which it chooses.
void score_row(const op::Route& o, std::span<const float> z, std::span<const float> bias, std::span<float> scores,
               std::span<float> keys) {
  const float top = *std::ranges::max_element(z);
  double sum = 0;
  for (std::size_t e = 0; e < z.size(); ++e) {
    scores[e] = o.score == GateScore::kSoftmax ? std::exp(z[e] - top) : 1.0f / (1.0f + std::exp(-z[e]));
    sum += static_cast<double>(scores[e]);
  }
  // Scores increase with logits, but rounding may make two of them equal: where nothing is added, logits decide.
  const bool by_score = !bias.empty() || o.groups > 1;
  for (std::size_t e = 0; e < z.size(); ++e) {
    if (o.score == GateScore::kSoftmax) scores[e] = static_cast<float>(static_cast<double>(scores[e]) / sum);
    keys[e] = by_score ? scores[e] + (bias.empty() ? 0.0f : bias[e]) : z[e];
  }
}

}  // namespace

void route_rows(const op::Route& o, std::span<const float> logits, std::int64_t experts, std::span<const float> bias,
                std::span<const float> scale, std::span<const std::int64_t> runs, std::span<float> out) {
  const auto count = to_size(experts), width = 2 * to_size(o.used);
  std::vector<float> scores(logits.size()), keys(logits.size());
  const auto row_of = [&](std::span<float> values, std::size_t r) { return values.subspan(r * count, count); };
  for (std::size_t r = 0; r < logits.size() / count; ++r)
    score_row(o, logits.subspan(r * count, count), bias, row_of(scores, r), row_of(keys, r));
  std::vector<std::uint8_t> all(count, 1), allowed(count, 1), chosen(count);
  std::vector<float> largest(count);
  for (std::size_t run = 0; run + 1 < runs.size(); ++run) {
    const auto first = to_size(runs[run]), end = to_size(runs[run + 1]);
    if (o.capacity > 0)
      pool_of_block(o, std::span(keys).subspan(first * count, (end - first) * count), largest, all, allowed);
    for (std::size_t r = first; r < end; ++r) {
      if (o.groups > 1) {
        const auto groups = to_size(o.groups);
        limit_groups(o, row_of(keys, r), std::span(largest).first(groups), std::span(chosen).first(groups), allowed);
      }
      choose_largest(row_of(keys, r), allowed, o.used, chosen);
      write_choice(o, row_of(scores, r), chosen, scale, out.subspan(r * width, width));
    }
  }
}

float expert_share(std::span<const float> route, std::int64_t expert) {
  const std::size_t used = route.size() / 2;
  for (std::size_t j = 0; j < used; ++j)
    if (static_cast<std::int64_t>(route[j]) == expert) return route[used + j];
  return 0;
}

WeightView expert_matrix(const WeightView& stack, std::int64_t expert) {
  WeightView matrix = stack;
  matrix.shape = {stack.shape[0], stack.shape[1]};
  const auto bytes = to_size(codec(stack.type).row_bytes(stack.shape[0]) * stack.shape[1]);
  matrix.data = stack.data.subspan(to_size(expert) * bytes, bytes);
  return matrix;
}

std::vector<float> expert_inner(const op::Experts& o, const WeightView& gate, const WeightView& up,
                                std::span<const float> x, ThreadPool& pool) {
  const std::int64_t rows = static_cast<std::int64_t>(x.size()) / gate.shape[0], width = gate.shape[1];
  std::vector<float> gates(to_size(rows * width)), ups(gates.size());
  multiply_rows(gate, {}, x, gates, pool);
  multiply_rows(up, {}, x, ups, pool);
  gated(o.activation == Activation::kGeluTanh, gates, ups, width, gates, pool);
  if (o.hadamard != 0) transform_rows(o.hadamard, gates, pool);
  return gates;
}

void CanvasRunner::run(CanvasChunk& chunk, const op::Route& o) const {
  const ActivationRows& logits = chunk.values.at(o.logits);
  ActivationRows& out = add(chunk, o.out, logits.rows());
  std::vector<std::int64_t> runs;
  for (std::size_t c = 0; c < chunk.canvases.size(); ++c) {
    const std::int64_t step = o.capacity > 0 ? o.block : chunk.first_rows[c + 1] - chunk.first_rows[c];
    for (std::int64_t r = chunk.first_rows[c]; r < chunk.first_rows[c + 1]; r += step) runs.push_back(r);
  }
  runs.push_back(logits.rows());
  route_rows(o, logits.values, logits.width, vector(o.bias), vector(o.expert_scale), runs, out.values);
}

void CanvasRunner::run(CanvasChunk& chunk, const op::Experts& o) const {
  const ActivationRows &x = chunk.values.at(o.x), &route = chunk.values.at(o.route);
  ActivationRows& out = add(chunk, o.out, x.rows());
  const std::int64_t experts = weight(o.gate).shape[2];
  for (std::int64_t e = 0; e < experts; ++e) {  // ascending: the order in which a row's terms are added
    std::vector<float> given, shares;
    std::vector<std::int64_t> rows;
    for (std::int64_t r = 0; r < x.rows(); ++r) {
      const std::span<const float> choice(route.row(r), to_size(route.width));
      if (const float share = expert_share(choice, e); share != 0) {
        rows.push_back(r);
        shares.push_back(share);
        given.insert(given.end(), x.row(r), x.row(r) + x.width);
      }
    }
    if (rows.empty()) continue;
    const std::vector<float> inner =
        expert_inner(o, expert_matrix(weight(o.gate), e), expert_matrix(weight(o.up), e), given, pool_);
    if (on_expert_) on_expert_(o, e, given, inner);
    std::vector<float> product(rows.size() * to_size(out.width));
    multiply_rows(expert_matrix(weight(o.down), e), {}, inner, product, pool_);
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::int64_t column = 0; column < out.width; ++column)
        out.row(rows[i])[column] += shares[i] * product[i * to_size(out.width) + to_size(column)];
  }
}

}  // namespace dllm
