// Routing and experts in the NPU's number formats, row by row and expert by expert.

#include <algorithm>
#include <numeric>

#include "npu_compiler/testing/reference/executor.h"

namespace dllm::npu::reference {
namespace {

/// Indices of the `count` largest of the allowed `keys`, ascending; ties go to the lower index.
std::vector<std::size_t> largest(const std::vector<Bf16>& keys, const std::vector<bool>& allowed, std::size_t count) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (allowed[i]) order.push_back(i);
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return order_key(keys[a]) > order_key(keys[b]); });
  order.resize(std::min(order.size(), count));
  std::ranges::sort(order);
  return order;
}

}  // namespace

/// The experts of the groups whose two largest keys have the largest sum.
std::vector<bool> Executor::allowed_groups(const op::Route& o, const std::vector<Bf16>& keys) const {
  const auto groups = static_cast<std::size_t>(o.groups), size = keys.size() / groups;
  std::vector<Bf16> sums;
  for (std::size_t g = 0; g < groups; ++g) {
    std::vector<Bf16> group(keys.begin() + static_cast<std::ptrdiff_t>(g * size),
                            keys.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::ranges::sort(group, [](Bf16 a, Bf16 b) { return order_key(a) > order_key(b); });
    sums.push_back(size > 1 ? bf16_add(group[0], group[1]) : group[0]);
  }
  std::vector<bool> allowed(keys.size(), false);
  for (const std::size_t g : largest(sums, std::vector<bool>(groups, true), static_cast<std::size_t>(o.groups_used)))
    for (std::size_t i = g * size; i < (g + 1) * size; ++i) allowed[i] = true;
  return allowed;
}

/// The `capacity` largest of the maxima over the rows of one sequence and one block.
std::vector<bool> Executor::allowed_in_block(const op::Route& o, const Rows& keys, std::size_t row) const {
  std::vector<Bf16> best = keys[row];
  for (std::size_t r = 0; r < keys.size(); ++r)
    if (rows_[r].sequence == rows_[row].sequence && rows_[r].position / o.block == rows_[row].position / o.block)
      for (std::size_t e = 0; e < best.size(); ++e) best[e] = bf16_max(best[e], keys[r][e]);
  std::vector<bool> allowed(best.size(), false);
  for (const std::size_t e : largest(best, std::vector<bool>(best.size(), true), static_cast<std::size_t>(o.capacity)))
    allowed[e] = true;
  return allowed;
}

void Executor::run(const op::Route& o) {
  const auto experts = static_cast<std::size_t>(map(o.logits).width), vlen = static_cast<std::size_t>(m_.vlen);
  const std::size_t lanes_of_row = (experts + vlen - 1) / vlen * vlen;
  const auto sum_of = [&](const std::vector<Bf16>& row) {
    float running = 0;
    Bf16 sum = 0;
    for (std::size_t slab = 0; slab < lanes_of_row; slab += vlen) sum = sum_tree(row, slab, vlen, running);
    return sum;
  };
  const bool biased = o.bias != kNoId && weights_[static_cast<std::size_t>(o.bias)].present();
  const std::vector<float> bias = biased ? weight_row(o.bias, 0) : std::vector<float>();
  Rows scores, keys;
  for (const std::vector<Bf16>& row : value(o.logits)) {
    const std::vector<Bf16> z(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(experts));
    std::vector<Bf16> s(lanes_of_row, 0);
    if (o.score == GateScore::kSoftmax) {
      const Bf16 top = *std::ranges::max_element(z, {}, order_key);
      for (std::size_t e = 0; e < experts; ++e) s[e] = bf16_exp(bf16_sub(z[e], top));
      const Bf16 factor = bf16_reciprocal(sum_of(s));
      for (std::size_t e = 0; e < experts; ++e) s[e] = bf16_mul(s[e], factor);
    } else {
      for (std::size_t e = 0; e < experts; ++e) s[e] = bf16_reciprocal(bf16_add(bf16_exp(bf16_sub(0, z[e])), kBf16One));
    }
    std::vector<Bf16> t = z;
    if (biased || o.groups > 1)
      for (std::size_t e = 0; e < experts; ++e) t[e] = biased ? bf16_add(s[e], f32_to_bf16(bias[e])) : s[e];
    scores.push_back(std::move(s));
    keys.push_back(std::move(t));
  }
  auto& chosen = chosen_[o.out];
  chosen.clear();
  for (std::size_t r = 0; r < keys.size(); ++r) {
    std::vector<bool> allowed(experts, true);
    if (o.groups > 1) allowed = allowed_groups(o, keys[r]);
    if (o.capacity > 0) allowed = allowed_in_block(o, keys, r);
    chosen.push_back(largest(keys[r], allowed, static_cast<std::size_t>(o.used)));
    std::vector<Bf16>& w = value(o.out)[r];
    for (const std::size_t e : chosen[r]) w[e] = scores[r][e];
    Bf16 factor = f32_to_bf16(o.scale);
    if (o.normalize) {
      factor = bf16_mul(bf16_reciprocal(bf16_add(sum_of(w), f32_to_bf16(1e-20f))), factor);
    }
    for (const std::size_t e : chosen[r]) w[e] = bf16_mul(w[e], factor);
    if (o.expert_scale == kNoId) continue;
    const std::vector<float> scales = weight_row(o.expert_scale, 0);
    for (const std::size_t e : chosen[r]) w[e] = bf16_mul(w[e], f32_to_bf16(scales[e]));
  }
}

void Executor::run(const op::Experts& o) {
  const LaneMap inner{.width = weights_[static_cast<std::size_t>(o.gate)].shape[1]};
  for (std::size_t r = 0; r < value(o.x).size(); ++r)
    for (const std::size_t e : chosen_[o.route][r]) {
      const std::vector<Bf16> gate = product(value(o.x)[r], o.gate, kNoId, map(o.x), e),
                              up = product(value(o.x)[r], o.up, kNoId, map(o.x), e);
      std::vector<Bf16> act(lanes(inner), 0);
      for (std::size_t i = 0; i < gate.size(); ++i) {
        act[i] = bf16_mul(activated(o.activation, gate[i]), up[i]);
      }
      for (std::int64_t i = 0; o.hadamard != 0 && i < inner.width; i += o.hadamard) turn(act, i, o.hadamard);
      const std::vector<Bf16> y = product(act, o.down, kNoId, inner, e);
      for (std::size_t i = 0; i < y.size(); ++i) {
        Bf16& sum = value(o.out)[r][i];
        sum = bf16_add(sum, bf16_mul(y[i], value(o.route)[r][e]));
      }
    }
}

}  // namespace dllm::npu::reference
