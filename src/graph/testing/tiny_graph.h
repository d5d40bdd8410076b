#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "graph/builder.h"

namespace dllm {

/// A small dense transformer with every operator, for tests of code that reads graphs. Shape: dimensions vocab, width,
/// layers, heads, kv_heads, head_dim, ffn, rope_dims; layout; head_norms (norms of q and k by head); and bias(builder,
/// name, n), which declares the bias of q, k or the head, or returns that there is none. A shape may have
/// experts(builder, x, layer): a layer of experts, or kNoId for a dense layer; and orders of Hadamard transforms,
/// `turns` of queries and keys and `down_turns` of the input of the down projection (0: none).
template <class Shape>
Graph tiny_transformer(const Shape& m, StepShape shape) {
  GraphBuilder b(shape);
  const auto rope = [&](ValueId x, std::int64_t heads, WeightId factors, const std::string& name) {
    op::Rope spec{};
    spec.heads = static_cast<std::int32_t>(heads), spec.head_dim = static_cast<std::int32_t>(m.head_dim);
    spec.dims = static_cast<std::int32_t>(m.rope_dims), spec.layout = m.layout, spec.theta = 10000.f, spec.scale = 0.5f;
    spec.factors = factors;
    return b.rope(x, spec, name);
  };
  ValueId x = b.embed(b.weight("embd", {m.width, m.vocab}), "x");
  const WeightId factors = b.optional_weight("factors", {m.rope_dims / 2});
  const std::int64_t qw = m.heads * m.head_dim, kw = m.kv_heads * m.head_dim;
  for (std::int64_t l = 0; l < m.layers; ++l) {
    const std::string p = "blk." + std::to_string(l) + ".";
    const ValueId a = b.rms_norm(x, b.weight(p + "norm1", {m.width}), 1e-5f, p + "a");
    // Weights in an order of ours: that of a call's arguments is the compiler's choice.
    const WeightId q_bias = m.bias(b, p + "q.bias", qw);
    ValueId q = b.linear(a, b.weight(p + "q", {m.width, qw}), p + "q", q_bias);
    const WeightId k_bias = m.bias(b, p + "k.bias", kw);
    ValueId k = b.linear(a, b.weight(p + "k", {m.width, kw}), p + "k", k_bias);
    const ValueId v = b.linear(a, b.weight(p + "v", {m.width, kw}), p + "v");
    if (m.head_norms) {
      q = b.rms_norm(q, b.weight(p + "q_norm", {m.head_dim}), 1e-5f, p + "qn", static_cast<std::int32_t>(m.heads));
      k = b.rms_norm(k, b.weight(p + "k_norm", {m.head_dim}), 1e-5f, p + "kn", static_cast<std::int32_t>(m.kv_heads));
    }
    q = rope(q, m.heads, factors, p + "qr");
    k = rope(k, m.kv_heads, factors, p + "kr");
    std::int64_t down_turns = 0;
    if constexpr (requires { m.turns; }) {
      q = b.hadamard(q, m.turns, p + "qh");
      k = b.hadamard(k, m.turns, p + "kh");
      down_turns = m.down_turns;
    }
    b.store_kv(k, v, static_cast<std::int32_t>(l));
    op::Attention spec{};
    spec.layer = static_cast<std::int32_t>(l), spec.heads = static_cast<std::int32_t>(m.heads);
    spec.kv_heads = static_cast<std::int32_t>(m.kv_heads), spec.head_dim = static_cast<std::int32_t>(m.head_dim);
    spec.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(m.head_dim)));
    const ValueId mixed = b.attention(q, spec, p + "mix");
    x = b.add(x, b.linear(mixed, b.weight(p + "o", {qw, m.width}), p + "o"), p + "res1");
    const ValueId f = b.rms_norm(x, b.weight(p + "norm2", {m.width}), 1e-5f, p + "f");
    if constexpr (requires { m.experts(b, f, l); }) {
      if (const ValueId routed = m.experts(b, f, l); routed != kNoId) {
        x = b.add(x, routed, p + "res2");
        continue;
      }
    }
    const ValueId gate = b.linear(f, b.weight(p + "gate", {m.width, m.ffn}), p + "gate");
    const ValueId up = b.linear(f, b.weight(p + "up", {m.width, m.ffn}), p + "up");
    const ValueId act = b.hadamard(b.glu(gate, up, p + "act"), down_turns, p + "turned");
    const ValueId down = b.linear(act, b.weight(p + "down", {m.ffn, m.width}), p + "down");
    x = b.add(x, down, p + "res2");
  }
  x = b.gather_scored(x, "scored");
  x = b.rms_norm(x, b.weight("norm", {m.width}), 1e-5f, "n");
  const WeightId head_bias = m.bias(b, "head.bias", m.vocab);
  b.score_head(x, b.weight("head", {m.width, m.vocab}), head_bias);
  return b.take();
}

}  // namespace dllm
