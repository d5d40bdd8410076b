#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cpu/cpu_backend.h"
#include "cpu/kernels/test_data.h"
#include "graph/testing/tiny_graph.h"
#include "numerics/tensor_type.h"

// A hand-built transformer for tests of the executor, with every operator, and the same model in double precision.

namespace dllm::cpu::test {

struct TinyShape {
  std::int64_t vocab = 150, width = 64, layers = 2, heads = 4, kv_heads = 2, head_dim = 16, ffn = 96;
  std::int64_t rope_dims = 12;
  RopeLayout layout = RopeLayout::kHalfSplit;
  TensorType type = TensorType::kF32;
  static constexpr bool head_norms = true;

  WeightId bias(GraphBuilder& b, const std::string& name, std::int64_t n) const {
    return name.ends_with(".k.bias") ? b.optional_weight(name, {n}) : b.weight(name, {n});
  }
};

inline Graph tiny_graph(const TinyShape& shape, StepShape step) { return tiny_transformer(shape, step); }

/// Random weights of the model; optional ones present or not.
class TinyModel {
 public:
  explicit TinyModel(TinyShape shape, std::uint64_t seed = 1, bool optional = true) : shape_(shape) {
    const Graph graph = tiny_graph(shape_, {1, 1});
    Random random(seed);
    for (const WeightDecl& decl : graph.weights) {
      WeightView view{decl.shape.size() == 1 ? TensorType::kF32 : shape_.type, decl.shape, {}};
      std::vector<float> values;
      if (decl.required || optional) values = random_floats(random, element_count(decl.shape), amplitude(decl));
      // Norm gains and frequency divisors are near 1.
      if (decl.name.find("norm") != std::string::npos || decl.name == "factors")
        for (float& v : values) v = 1.f + 0.3f * v;
      std::vector<std::byte> data(
          values.empty() ? 0 : static_cast<std::size_t>(codec(view.type).row_bytes(element_count(decl.shape))));
      if (!values.empty())
        codec(view.type).quantize(values.data(), data.data(), static_cast<std::int64_t>(values.size()));
      // The model's actual values, after rounding to its format.
      if (!values.empty())
        codec(view.type).dequantize(data.data(), values.data(), static_cast<std::int64_t>(values.size()));
      names_.push_back(decl.name);
      floats_.push_back(std::move(values));
      bytes_.push_back(std::move(data));
      view.data = bytes_.back();
      weights_.push_back(std::move(view));
    }
  }

  const TinyShape& shape() const { return shape_; }
  Weights weights() const { return weights_; }
  GraphFactory factory() const {
    return [shape = shape_](StepShape step) { return tiny_graph(shape, step); };
  }
  const std::vector<float>& floats(const std::string& name) const {
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (names_[i] == name) return floats_[i];
    std::abort();
  }

  /// Logits of every row, in double precision, when row i sees row j if `sees(i, j)`.
  template <class Sees>
  std::vector<std::vector<double>> forward(const std::vector<PlanRow>& rows, Sees sees) const;

 private:
  static float amplitude(const WeightDecl& decl) {
    return decl.shape.size() == 1 ? 0.5f : 2.f / std::sqrt(static_cast<float>(decl.shape[0]));
  }

  TinyShape shape_;
  std::vector<std::string> names_;
  std::vector<std::vector<float>> floats_;
  std::vector<std::vector<std::byte>> bytes_;
  Weights weights_;
};

using Row = std::vector<double>;

inline Row naive_linear(const Row& x, const std::vector<float>& w, const std::vector<float>& bias, std::int64_t n) {
  Row out(static_cast<std::size_t>(n), 0);
  for (std::size_t j = 0; j < out.size(); ++j) {
    for (std::size_t k = 0; k < x.size(); ++k) out[j] += x[k] * static_cast<double>(w[j * x.size() + k]);
    if (!bias.empty()) out[j] += static_cast<double>(bias[j]);
  }
  return out;
}

inline Row naive_norm(Row x, const std::vector<float>& gain) {
  for (std::size_t g = 0; g < x.size(); g += gain.size()) {
    double squares = 0;
    for (std::size_t i = 0; i < gain.size(); ++i) squares += x[g + i] * x[g + i];
    for (std::size_t i = 0; i < gain.size(); ++i)
      x[g + i] *= static_cast<double>(gain[i]) / std::sqrt(squares / static_cast<double>(gain.size()) + 1e-5);
  }
  return x;
}

inline Row naive_rope(Row x, const TinyShape& m, Position position, const std::vector<float>& factors) {
  const auto dim = static_cast<std::size_t>(m.head_dim), half = static_cast<std::size_t>(m.rope_dims) / 2;
  for (std::size_t h = 0; h < x.size(); h += dim)
    for (std::size_t j = 0; j < half; ++j) {
      double angle =
          position * 0.5 * std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(m.rope_dims));
      if (!factors.empty()) angle /= static_cast<double>(factors[j]);
      const bool interleaved = m.layout == RopeLayout::kInterleaved;
      double &a = x[h + (interleaved ? 2 * j : j)], &b = x[h + (interleaved ? 2 * j + 1 : j + half)];
      const double rotated = a * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + a * std::sin(angle);
      a = rotated;
    }
  return x;
}

template <class Sees>
Row naive_attention(const TinyShape& m, const Row& q, std::size_t i, const std::vector<Row>& k,
                    const std::vector<Row>& v, Sees sees) {
  Row out(q.size(), 0);
  const auto dim = static_cast<std::size_t>(m.head_dim);
  for (std::size_t h = 0; h < static_cast<std::size_t>(m.heads); ++h) {
    const std::size_t kv = h / static_cast<std::size_t>(m.heads / m.kv_heads) * dim;
    double total = 0;
    for (std::size_t j = 0; j < k.size(); ++j) {
      if (!sees(i, j)) continue;
      double s = 0;
      for (std::size_t d = 0; d < dim; ++d) s += q[h * dim + d] * k[j][kv + d];
      const double p = std::exp(s * 0.25);
      total += p;
      for (std::size_t d = 0; d < dim; ++d) out[h * dim + d] += p * v[j][kv + d];
    }
    for (std::size_t d = 0; d < dim; ++d) out[h * dim + d] /= total;
  }
  return out;
}

inline Row plus(Row a, const Row& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

template <class Sees>
std::vector<std::vector<double>> TinyModel::forward(const std::vector<PlanRow>& rows, Sees sees) const {
  const TinyShape& m = shape_;
  std::vector<Row> x;
  for (const PlanRow& row : rows) {
    const auto first = floats("embd").begin() + row.token * m.width;
    x.emplace_back(first, first + m.width);
  }
  for (std::int64_t l = 0; l < m.layers; ++l) {
    const auto w = [&](const char* name) -> const std::vector<float>& {
      return floats("blk." + std::to_string(l) + "." + name);
    };
    std::vector<Row> q, k, v;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Row a = naive_norm(x[i], w("norm1"));
      const Position at = rows[i].position;
      q.push_back(naive_rope(naive_norm(naive_linear(a, w("q"), w("q.bias"), m.heads * m.head_dim), w("q_norm")), m, at,
                             floats("factors")));
      k.push_back(naive_rope(naive_norm(naive_linear(a, w("k"), w("k.bias"), m.kv_heads * m.head_dim), w("k_norm")), m,
                             at, floats("factors")));
      v.push_back(naive_linear(a, w("v"), {}, m.kv_heads * m.head_dim));
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      x[i] = plus(x[i], naive_linear(naive_attention(m, q[i], i, k, v, sees), w("o"), {}, m.width));
      const Row f = naive_norm(x[i], w("norm2"));
      Row gate = naive_linear(f, w("gate"), {}, m.ffn);
      const Row up = naive_linear(f, w("up"), {}, m.ffn);
      for (std::size_t j = 0; j < gate.size(); ++j) gate[j] *= up[j] / (1 + std::exp(-gate[j]));
      x[i] = plus(x[i], naive_linear(gate, w("down"), {}, m.width));
    }
  }
  for (Row& row : x) row = naive_linear(naive_norm(row, floats("norm")), floats("head"), floats("head.bias"), m.vocab);
  return x;
}

}  // namespace dllm::cpu::test
