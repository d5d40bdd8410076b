// Routing and experts, as reference/experts.cpp defines them.

#include <algorithm>
#include <numeric>

#include "base/to_size.h"
#include "npu_backend/accuracy/executor.h"

namespace dllm::npu::accuracy {
namespace {

/// Indices of the `count` largest of `keys` among the allowed ones, the lower index first among equals, ascending.
std::vector<std::int32_t> largest(std::span<const float> keys, const std::vector<bool>& allowed, std::int64_t count) {
  std::vector<std::int32_t> order;
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (allowed[i]) order.push_back(static_cast<std::int32_t>(i));
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) { return keys[to_size(a)] > keys[to_size(b)]; });
  order.resize(std::min(order.size(), to_size(count)));
  std::ranges::sort(order);
  return order;
}

/// Row of `vlen` lanes after row.
float sum_of(std::span<const float> lanes, std::int64_t vlen) {
  float running = 0;
  for (std::size_t at = 0; at < lanes.size(); at += to_size(vlen))
    running = sum_tree(lanes.subspan(at, std::min(lanes.size() - at, to_size(vlen))), running);
  return running;
}

std::vector<bool> chosen_of(std::size_t size, const std::vector<std::int32_t>& indices) {
  std::vector<bool> allowed(size, false);
  for (const std::int32_t i : indices) allowed[to_size(i)] = true;
  return allowed;
}

}  // namespace

/// The experts of the groups whose two largest keys have the largest sum.
std::vector<bool> Executor::allowed_groups(const op::Route& o, std::span<const float> keys) const {
  const auto groups = to_size(o.groups), size = keys.size() / groups;
  std::vector<float> sums;
  for (std::size_t g = 0; g < groups; ++g) {
    std::vector<float> group(keys.begin() + static_cast<std::ptrdiff_t>(g * size),
                             keys.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::ranges::sort(group, std::greater<>());
    sums.push_back(size > 1 ? round(group[0] + group[1]) : group[0]);
  }
  const auto best = chosen_of(groups, largest(sums, std::vector<bool>(groups, true), o.groups_used));
  std::vector<bool> allowed(keys.size(), false);
  for (std::size_t i = 0; i < allowed.size(); ++i) allowed[i] = best[std::min(i / size, groups - 1)];
  return allowed;
}

/// The `capacity` largest of the maxima over the rows of one sequence and one block.
std::vector<bool> Executor::allowed_in_block(const op::Route& o, const LaneRows& keys, std::int64_t row) const {
  const auto at = [this](std::int64_t r) -> const Row& { return rows_[to_size(r)]; };
  std::vector<float> best(keys.row(row), keys.row(row) + keys.stride);
  for (std::int64_t r = 0; r < keys.rows; ++r)
    if (at(r).sequence == at(row).sequence && at(r).shadow == at(row).shadow &&
        at(r).position / o.block == at(row).position / o.block)
      for (std::size_t e = 0; e < best.size(); ++e) best[e] = vector_max(best[e], keys.row(r)[e]);
  return chosen_of(best.size(), largest(best, std::vector<bool>(best.size(), true), o.capacity));
}

void Executor::run(const op::Route& o) {
  const std::int64_t experts = map(o.logits).width;
  const auto count = to_size(experts);
  const std::vector<float>& bias = vector(o.bias);
  LaneRows scores, keys;
  scores.reset(value(o.logits).rows, experts);
  keys.reset(value(o.logits).rows, experts);
  for (std::int64_t r = 0; r < scores.rows; ++r) {
    const std::span<const float> z = value(o.logits).lanes(r).first(count);
    const std::span<float> s = scores.lanes(r), t = keys.lanes(r);
    if (o.score == GateScore::kSoftmax) {
      const float top = *std::ranges::max_element(z);
      for (std::size_t e = 0; e < count; ++e) s[e] = vector_exp(profile_.vector, round(z[e] - top));
      const float factor = vector_reciprocal(profile_.vector, round(sum_of(s, layout_.machine.vlen)));
      for (float& lane : s) lane = round(lane * factor);
    } else {
      for (std::size_t e = 0; e < count; ++e)
        s[e] = vector_reciprocal(profile_.vector, round(vector_exp(profile_.vector, 0.0f - z[e]) + 1.0f));
    }
    const bool by_score = !bias.empty() || o.groups > 1;
    for (std::size_t e = 0; e < count; ++e) t[e] = !by_score ? z[e] : bias.empty() ? s[e] : round(s[e] + bias[e]);
  }
  auto& chosen = chosen_[o.out];
  chosen.clear();
  value(o.out).clear();
  for (std::int64_t r = 0; r < keys.rows; ++r) {
    std::vector<bool> allowed(count, true);
    if (o.groups > 1) allowed = allowed_groups(o, keys.lanes(r));
    if (o.capacity > 0) allowed = allowed_in_block(o, keys, r);
    chosen.push_back(largest(keys.lanes(r), allowed, o.used));
    float* w = value(o.out).row(r);
    for (const std::int32_t e : chosen.back()) w[e] = scores.row(r)[e];
    float factor = round(o.scale);
    if (o.normalize) {
      const float sum = round(round(sum_of(value(o.out).lanes(r), layout_.machine.vlen)) + round(1e-20f));
      factor = round(vector_reciprocal(profile_.vector, sum) * factor);
    }
    for (const std::int32_t e : chosen.back()) w[e] = round(w[e] * factor);
    if (o.expert_scale == kNoId) continue;
    const std::vector<float>& scales = vector(o.expert_scale);
    for (const std::int32_t e : chosen.back()) w[e] = round(w[e] * scales[to_size(e)]);
  }
}

void Executor::run(const op::Experts& o) {
  const std::vector<Matrix>&gates = matrices_.at(o.gate), &ups = matrices_.at(o.up), &downs = matrices_.at(o.down);
  const OperandRows& all = operand(o.x, gates.front().contraction());
  const std::int64_t inner = gates.front().outputs(), lanes = row_lanes({.width = inner});
  const auto& chosen = chosen_[o.route];
  LaneRows gate, up, act, y;
  value(o.out).clear();
  for (std::size_t e = 0; e < gates.size(); ++e) {  // ascending: the order in which a row's terms are added
    std::vector<std::int64_t> rows;
    for (std::size_t r = 0; r < chosen.size(); ++r)
      if (std::ranges::find(chosen[r], static_cast<std::int32_t>(e)) != chosen[r].end())
        rows.push_back(static_cast<std::int64_t>(r));
    if (rows.empty()) continue;
    const auto count = static_cast<std::int64_t>(rows.size());
    OperandRows x, middle;
    x.reset(count, gates[e].contraction());
    for (std::int64_t i = 0; i < count; ++i) x.copy_row(all, rows[to_size(i)], i);
    gate.reset(count, lanes), up.reset(count, lanes), act.reset(count, lanes);
    y.reset(count, downs[e].outputs());
    multiply(x, gates[e], {}, {.width = inner}, [&](std::int64_t r) { return gate.row(r); });
    multiply(x, ups[e], {}, {.width = inner}, [&](std::int64_t r) { return up.row(r); });
    middle.reset(count, downs[e].contraction());
    Operand row;
    for (std::int64_t r = 0; r < count; ++r) {
      if (o.activation == Activation::kSilu)
        glu_row(gate.row(r), up.row(r), inner, act.row(r));
      else
        activation_row(o.activation, gate.row(r), up.row(r), inner, act.row(r));
      if (o.hadamard != 0) hadamard_lanes(o.hadamard, act.lanes(r).first(to_size(inner)));
      quantize(profile_.activation, product_.rule.integers(), act.lanes(r), row);
      downs[e].contraction().gather(row, profile_.activation.block(), middle.a.data() + r * middle.terms,
                                    middle.exponents.data() + r * middle.groups);
      middle.lay_bytes(r);
    }
    multiply(middle, downs[e], {}, {.width = downs[e].outputs()}, [&](std::int64_t r) { return y.row(r); });
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t r = rows[to_size(i)];
      const float share = value(o.route).row(r)[e];
      float* out = value(o.out).row(r);
      for (std::int64_t c = 0; c < y.stride; ++c) out[c] = round(out[c] + round(y.row(i)[c] * share));
    }
  }
}

}  // namespace dllm::npu::accuracy
