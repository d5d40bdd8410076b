// Hidden states that go from one model to another (drafters), the convolution over a drafter's block, and operators
// that only networks from outside have: plain loops, the same on every instruction set.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <ranges>
#include <variant>

#include "cpu/executor.h"

namespace dllm::cpu {

/// Room for what the graph hands out, and where each of its rows goes.
void Executor::begin_hidden(std::vector<Scores>& scores) {
  const std::int64_t columns = hidden_width(plan_->graph);
  hidden_out_.clear();
  if (columns == 0) return;
  const bool scored = std::ranges::any_of(plan_->graph.ops, [this](const Op& op) {
    const auto* const o = std::get_if<op::HiddenOut>(&op);
    return o != nullptr && plan_->scored[static_cast<std::size_t>(o->x)];
  });
  for (std::size_t s = 0; s < batch_.size(); ++s) {
    const StepPlan& plan = batch_[s].plan;
    const std::size_t count = scored ? plan.scored.size() : static_cast<std::size_t>(plan.row_count());
    const bool wanted = batch_[s].request.hidden;
    if (wanted) scores[s].hidden.resize(count * static_cast<std::size_t>(columns));
    assert(!scored || !batch_[s].guidance);  // a guided row is gathered twice
    for (std::size_t i = 0; i < count; ++i)
      hidden_out_.push_back(wanted ? scores[s].hidden.data() + i * static_cast<std::size_t>(columns) : nullptr);
  }
}

void Executor::row(const op::HiddenIn& o, std::int64_t r) {
  const std::int64_t n = width(o.out);
  std::memcpy(value(o.out) + r * n, rows_[static_cast<std::size_t>(r)].hidden + o.first,
              static_cast<std::size_t>(n) * sizeof(float));
}

void Executor::row(const op::HiddenOut& o, std::int64_t r) {
  const std::int64_t n = width(o.x);
  if (float* const to = hidden_out_[static_cast<std::size_t>(r)]; to != nullptr)
    std::memcpy(to + o.first, value(o.x) + r * n, static_cast<std::size_t>(n) * sizeof(float));
}

void Executor::row(const op::LayerNorm& o, std::int64_t r) {
  const std::int64_t n = width(o.out);
  const float *const x = value(o.x) + r * n, *const gain = vector(o.gain), *const bias = vector(o.bias);
  float* const out = value(o.out) + r * n;
  double mean = 0, squares = 0;
  for (std::int64_t i = 0; i < n; ++i) mean += static_cast<double>(x[i]);
  mean /= static_cast<double>(n);
  for (std::int64_t i = 0; i < n; ++i)
    squares += (static_cast<double>(x[i]) - mean) * (static_cast<double>(x[i]) - mean);
  const double factor = 1 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(o.eps));
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = static_cast<float>((static_cast<double>(x[i]) - mean) * factor) * gain[i] + bias[i];
}

void Executor::activate(Activation activation, const float* gate, const float* up, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto x = static_cast<double>(gate[i]);
    const double y = activation == Activation::kTanh   ? std::tanh(x)
                     : activation == Activation::kRelu ? std::max(x, 0.0)
                                                       : x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    out[i] = static_cast<float>(y) * up[i];
  }
}

/// Rows of a plan are neighbours among the rows of the batch.
void Executor::run(const op::BlockConv& o) {
  const std::int64_t n = width(o.out), groups = n / o.group;
  const float* const base = vector(o.base) + o.side * o.taps * n;
  const std::int64_t first = first_row(o.out);
  parallel_items(pool_, rows(o.out), o.taps * n, [&](std::int64_t item, int) {
    const std::int64_t r = first + item;
    const float* const dynamic = value(o.dynamic) + r * width(o.dynamic) + o.side * o.taps * groups;
    float* const out = value(o.out) + r * n;
    std::fill_n(out, n, 0.f);
    for (std::int64_t tap = 0; tap < std::min<std::int64_t>(o.taps, r + 1); ++tap) {
      if (rows_[static_cast<std::size_t>(r - tap)].sequence != rows_[static_cast<std::size_t>(r)].sequence) break;
      const float *const x = value(o.x) + (r - tap) * n, *const kernel = base + tap * n;
      for (std::int64_t c = 0; c < n; ++c) out[c] += (kernel[c] + dynamic[tap * groups + c / o.group]) * x[c];
    }
  });
}

}  // namespace dllm::cpu
