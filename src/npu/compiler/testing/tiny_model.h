#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "model/weights.h"
#include "numerics/tensor_type.h"

// A small transformer with every operator and random weights, for tests of compiled programs.

namespace dllm::npu::test {

struct TinyShape {
  std::int64_t vocab = 70, width = 48, layers = 2, heads = 4, kv_heads = 2, head_dim = 16, ffn = 72;
  std::int64_t rope_dims = 16;
  RopeLayout layout = RopeLayout::kHalfSplit;
  bool head_norms = false, biases = true;
};

inline Graph tiny_graph(const TinyShape& m, StepShape shape) {
  GraphBuilder b(shape);
  const WeightId factors = b.optional_weight("factors", {m.rope_dims / 2});
  const auto rope = [&](ValueId x, std::int64_t heads, const std::string& name) {
    op::Rope spec{};
    spec.heads = static_cast<std::int32_t>(heads), spec.head_dim = static_cast<std::int32_t>(m.head_dim);
    spec.dims = static_cast<std::int32_t>(m.rope_dims), spec.layout = m.layout, spec.theta = 10000.f, spec.scale = 0.5f;
    spec.factors = factors;
    return b.rope(x, spec, name);
  };
  const WeightId table = b.weight("embd", {m.width, m.vocab});
  ValueId x = b.embed(table, "x");
  const std::int64_t qw = m.heads * m.head_dim, kw = m.kv_heads * m.head_dim;
  for (std::int64_t l = 0; l < m.layers; ++l) {
    const std::string p = "blk." + std::to_string(l) + ".";
    const ValueId a = b.rms_norm(x, b.weight(p + "norm1", {m.width}), 1e-5f, p + "a");
    const auto bias = [&](const char* name, std::int64_t n) {
      return m.biases ? b.weight(p + name, {n}) : b.optional_weight(p + name, {n});
    };
    ValueId q = b.linear(a, b.weight(p + "q", {m.width, qw}), p + "q", bias("q.bias", qw));
    ValueId k = b.linear(a, b.weight(p + "k", {m.width, kw}), p + "k", bias("k.bias", kw));
    const ValueId v = b.linear(a, b.weight(p + "v", {m.width, kw}), p + "v");
    if (m.head_norms) {
      q = b.rms_norm(q, b.weight(p + "q_norm", {m.head_dim}), 1e-5f, p + "qn", static_cast<std::int32_t>(m.heads));
      k = b.rms_norm(k, b.weight(p + "k_norm", {m.head_dim}), 1e-5f, p + "kn", static_cast<std::int32_t>(m.kv_heads));
    }
    q = rope(q, m.heads, p + "qr");
    k = rope(k, m.kv_heads, p + "kr");
    b.store_kv(k, v, static_cast<std::int32_t>(l));
    op::Attention spec{};
    spec.layer = static_cast<std::int32_t>(l), spec.heads = static_cast<std::int32_t>(m.heads);
    spec.kv_heads = static_cast<std::int32_t>(m.kv_heads), spec.head_dim = static_cast<std::int32_t>(m.head_dim);
    spec.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(m.head_dim)));
    const ValueId mixed = b.attention(q, spec, p + "mix");
    x = b.add(x, b.linear(mixed, b.weight(p + "o", {qw, m.width}), p + "o"), p + "res1");
    const ValueId f = b.rms_norm(x, b.weight(p + "norm2", {m.width}), 1e-5f, p + "f");
    const ValueId gate = b.linear(f, b.weight(p + "gate", {m.width, m.ffn}), p + "gate");
    const ValueId up = b.linear(f, b.weight(p + "up", {m.width, m.ffn}), p + "up");
    const ValueId down = b.linear(b.swiglu(gate, up, p + "act"), b.weight(p + "down", {m.ffn, m.width}), p + "down");
    x = b.add(x, down, p + "res2");
  }
  x = b.gather_scored(x, "scored");
  x = b.rms_norm(x, b.weight("norm", {m.width}), 1e-5f, "n");
  b.score_head(x, b.weight("head", {m.width, m.vocab}), m.biases ? b.weight("head.bias", {m.vocab}) : kNoId);
  return b.take();
}

/// Random weights for all declarations of a graph, float32.
class TinyWeights {
 public:
  explicit TinyWeights(const Graph& graph, unsigned seed = 1, bool optional = true) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (const WeightDecl& decl : graph.weights) {
      std::vector<float> values;
      if (decl.required || optional)
        for (std::int64_t i = 0; i < element_count(decl.shape); ++i) values.push_back(normal(random));
      const bool gain = decl.name.find("norm") != std::string::npos || decl.name == "factors";
      for (float& v : values)
        v = gain                     ? 1.f + 0.2f * v
            : decl.shape.size() == 1 ? 0.3f * v
                                     : 1.5f * v / std::sqrt(static_cast<float>(decl.shape[0]));
      for (float& v : values)
        if (decl.name == "factors") v = std::fabs(v) + 0.25f;
      data_.push_back(std::move(values));
    }
    for (std::size_t i = 0; i < data_.size(); ++i)
      views_.push_back({TensorType::kF32, graph.weights[i].shape, std::as_bytes(std::span(data_[i]))});
  }
  const Weights& views() const { return views_; }
  std::vector<bool> present() const {
    std::vector<bool> result;
    for (const WeightView& view : views_) result.push_back(view.present());
    return result;
  }

 private:
  std::vector<std::vector<float>> data_;
  Weights views_;
};

}  // namespace dllm::npu::test
