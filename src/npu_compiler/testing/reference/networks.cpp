// Operators of networks from outside: what compiled programs must compute.

#include <algorithm>

#include "npu_compiler/analytic/activation.h"
#include "npu_compiler/testing/reference/executor.h"

namespace dllm::npu::reference {
namespace {

Bf16 rounded(float x) { return f32_to_bf16(x); }

Bf16 sigmoid_of(Bf16 negated) { return bf16_reciprocal(bf16_add(bf16_exp(negated), kBf16One)); }

}  // namespace

/// Every operation rounded to BF16.
Bf16 Executor::activated(Activation activation, Bf16 x) {
  if (activation == Activation::kRelu) return bf16_max(x, 0);
  if (activation == Activation::kSilu) return bf16_mul(sigmoid_of(bf16_sub(0, x)), x);
  if (activation == Activation::kTanh) {
    const Bf16 sigmoid = sigmoid_of(bf16_mul(x, rounded(-2.0f)));
    return bf16_sub(bf16_mul(sigmoid, rounded(2.0f)), kBf16One);
  }
  const Bf16 square = bf16_mul(x, x);
  Bf16 form = 0;
  if (activation == Activation::kGelu) {
    const Bf16 t = bf16_min(square, rounded(kErfFormMost));
    form = bf16_add(bf16_mul(bf16_add(bf16_mul(t, rounded(kErfForm2)), rounded(kErfForm1)), t), rounded(kErfForm0));
  } else {
    form = bf16_add(bf16_mul(square, rounded(kTanhForm1)), rounded(kTanhForm0));
  }
  return bf16_mul(sigmoid_of(bf16_sub(0, bf16_mul(form, x))), x);
}

void Executor::run_activation(const op::Glu& o) {
  for (std::size_t r = 0; r < value(o.out).size(); ++r)
    for (std::size_t i = 0; i < static_cast<std::size_t>(map(o.out).width); ++i) {
      const Bf16 result = activated(o.activation, value(o.gate)[r][i]);
      value(o.out)[r][i] = o.up == kNoId ? result : bf16_mul(result, value(o.up)[r][i]);
    }
}

void Executor::run(const op::LayerNorm& o) {
  const std::vector<float> gain = weight_row(o.gain, 0), bias = weight_row(o.bias, 0);
  const auto n = static_cast<std::size_t>(map(o.x).width), vlen = static_cast<std::size_t>(m_.vlen);
  const Bf16 inverse = rounded(1.0f / static_cast<float>(n)), eps = rounded(o.eps);
  for (std::size_t r = 0; r < value(o.x).size(); ++r) {
    std::vector<Bf16> lanes = value(o.x)[r];
    const auto sum_of = [&](const std::vector<Bf16>& all) {
      float running = 0;
      Bf16 sum = 0;
      for (std::size_t slab = 0; slab < all.size(); slab += vlen) sum = sum_tree(all, slab, vlen, running);
      return sum;
    };
    const Bf16 mean = bf16_mul(sum_of(lanes), inverse);
    for (std::size_t i = 0; i < n; ++i) lanes[i] = bf16_sub(lanes[i], mean);
    std::vector<Bf16> squares;
    for (const Bf16 lane : lanes) squares.push_back(bf16_mul(lane, lane));
    const Bf16 factor = bf16_reciprocal(bf16_sqrt(bf16_add(bf16_mul(sum_of(squares), inverse), eps)));
    for (std::size_t i = 0; i < n; ++i)
      value(o.out)[r][i] = bf16_add(bf16_mul(bf16_mul(lanes[i], factor), rounded(gain[i])), rounded(bias[i]));
  }
}

void Executor::run(const op::HiddenIn& o) {
  const LaneMap& lanes_of = map(o.out);
  const std::size_t columns = hidden_.size() / rows_.size();
  for (std::size_t r = 0; r < rows_.size(); ++r)
    for (std::int64_t i = 0; i < lanes_of.width; ++i)
      value(o.out)[r][static_cast<std::size_t>(lanes_of.lane(i))] =
          rounded(hidden_[r * columns + static_cast<std::size_t>(o.first + i)]);
}

}  // namespace dllm::npu::reference
