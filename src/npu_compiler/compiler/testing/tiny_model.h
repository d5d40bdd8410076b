#pragma once

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "graph/testing/tiny_graph.h"
#include "model/weights.h"
#include "numerics/tensor_type.h"

// A small transformer with every operator and random weights, for tests of compiled programs.

namespace dllm::npu::test {

/// Layers of experts instead of dense ones, from layer `leading_dense` on; none if `count` is 0.
struct TinyExperts {
  std::int64_t count = 0, used = 2, width = 24, shared_width = 0, leading_dense = 0;
  GateScore score = GateScore::kSoftmax;
  bool bias = false;
  std::int32_t groups = 0, groups_used = 0, capacity = 0, block = 0;
  bool normalize = false;
  float scale = 1.f;
  std::int64_t turns = 0;  ///< order of the Hadamard transform of down's input
};

struct TinyShape {
  std::int64_t vocab = 70, width = 48, layers = 2, heads = 4, kv_heads = 2, head_dim = 16, ffn = 72;
  std::int64_t rope_dims = 16;
  RopeLayout layout = RopeLayout::kHalfSplit;
  bool head_norms = false, biases = true;
  TinyExperts routed = {};
  std::int64_t turns = 0, down_turns = 0;  ///< orders of Hadamard transforms

  ValueId experts(GraphBuilder& b, ValueId x, std::int64_t layer) const {
    if (routed.count == 0 || layer < routed.leading_dense) return kNoId;
    const std::string p = "blk." + std::to_string(layer) + ".";
    const auto linear = [&](ValueId from, const std::string& name, std::int64_t in, std::int64_t out) {
      return b.linear(from, b.weight(p + name, {in, out}), p + name);
    };
    op::Route spec{};
    spec.used = static_cast<std::int32_t>(routed.used), spec.score = routed.score;
    spec.groups = routed.groups, spec.groups_used = routed.groups_used;
    spec.capacity = routed.capacity, spec.block = routed.block;
    spec.normalize = routed.normalize, spec.scale = routed.scale;
    const ValueId logits = linear(x, "router", width, routed.count);
    spec.bias = routed.bias ? b.weight(p + "router.bias", {routed.count}) : kNoId;
    const ValueId route = b.route(logits, spec, p + "route");
    const WeightId gate = b.weight(p + "gate_exps", {width, routed.width, routed.count}),
                   up = b.weight(p + "up_exps", {width, routed.width, routed.count}),
                   down = b.weight(p + "down_exps", {routed.width, width, routed.count});
    const ValueId sum = b.experts(x,
                                  {.x = kNoId,
                                   .route = route,
                                   .gate = gate,
                                   .up = up,
                                   .down = down,
                                   .out = kNoId,
                                   .hadamard = static_cast<std::int32_t>(routed.turns)},
                                  p + "exps");
    if (routed.shared_width == 0) return sum;
    const ValueId act = b.glu(linear(x, "gate_shexp", width, routed.shared_width),
                              linear(x, "up_shexp", width, routed.shared_width), p + "act_shexp");
    return b.add(sum, linear(act, "down_shexp", routed.shared_width, width), p + "ffn");
  }

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
    for (std::size_t i = 0; i < data_.size(); ++i) {
      views_.push_back({TensorType::kF32, graph.weights[i].shape, std::as_bytes(std::span(data_[i]))});
      names_.push_back(graph.weights[i].name);
    }
  }
  /// Sets element i of every weight whose name ends in this to value(i).
  void fill(std::string_view ending, const std::function<float(std::size_t)>& value) {
    for (std::size_t w = 0; w < data_.size(); ++w)
      for (std::size_t i = 0; names_[w].ends_with(ending) && i < data_[w].size(); ++i) data_[w][i] = value(i);
  }
  const Weights& views() const { return views_; }
  std::vector<bool> present() const {
    std::vector<bool> result;
    for (const WeightView& view : views_) result.push_back(view.present());
    return result;
  }

 private:
  std::vector<std::vector<float>> data_;
  std::vector<std::string> names_;
  Weights views_;
};

}  // namespace dllm::npu::test
