#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "graph/testing/tiny_graph.h"
#include "model/weights.h"
#include "numerics/tensor_type.h"

// A small transformer with every operator and random weights, for tests of compiled programs.

namespace dllm::npu::test {

struct TinyShape {
  std::int64_t vocab = 70, width = 48, layers = 2, heads = 4, kv_heads = 2, head_dim = 16, ffn = 72;
  std::int64_t rope_dims = 16;
  RopeLayout layout = RopeLayout::kHalfSplit;
  bool head_norms = false, biases = true;

  WeightId bias(GraphBuilder& b, const std::string& name, std::int64_t n) const {
    if (biases) return b.weight(name, {n});
    return name == "head.bias" ? kNoId : b.optional_weight(name, {n});
  }
};

inline Graph tiny_graph(const TinyShape& shape, StepShape step) { return tiny_transformer(shape, step); }

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
