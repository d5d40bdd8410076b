#pragma once

#include <string>

#include "graph/graph.h"

namespace dllm {

/// Appends operators to a graph; each call names its output. Used by model/<architecture>.cpp only.
class GraphBuilder {
 public:
  explicit GraphBuilder(StepShape shape) { graph_.shape = shape; }

  WeightId weight(std::string name, Shape shape);
  WeightId optional_weight(std::string name, Shape shape);

  ValueId embed(WeightId table, std::string name, float scale = 1.f, EmbedPart part = EmbedPart::kRow);
  /// `gain` may be kNoId.
  ValueId rms_norm(ValueId x, WeightId gain, float eps, std::string name, std::int32_t groups = 1);
  ValueId layer_norm(ValueId x, WeightId gain, WeightId bias, float eps, std::string name);
  ValueId linear(ValueId x, WeightId weight, std::string name, WeightId bias = kNoId);
  /// `spec.x` and `spec.out` are ignored.
  ValueId rope(ValueId x, op::Rope spec, std::string name);
  /// x itself, if `order` is 0.
  ValueId hadamard(ValueId x, std::int64_t order, std::string name);
  void store_kv(ValueId k, ValueId v, std::int32_t layer);
  /// `spec.q` and `spec.out` are ignored.
  ValueId attention(ValueId q, op::Attention spec, std::string name);
  /// `up` may be kNoId.
  ValueId glu(ValueId gate, ValueId up, std::string name, Activation activation = Activation::kSilu);
  ValueId add(ValueId a, ValueId b, std::string name);
  /// `spec.x` and `spec.out` are ignored.
  ValueId scale(ValueId x, op::Scale spec, std::string name);
  ValueId select(ValueId canvas, ValueId context, std::string name);
  /// `spec.logits` and `spec.out` are ignored.
  ValueId route(ValueId logits, op::Route spec, std::string name);
  /// `spec.x` and `spec.out` are ignored.
  ValueId experts(ValueId x, op::Experts spec, std::string name);
  /// Columns follow those taken in before.
  ValueId hidden_in(std::int64_t width, std::string name);
  /// Columns follow those handed out before.
  void hidden_out(ValueId x);
  /// `spec.x`, `spec.dynamic` and `spec.out` are ignored.
  ValueId block_conv(ValueId x, ValueId dynamic, op::BlockConv spec, std::string name);
  ValueId gather_scored(ValueId x, std::string name);
  void score_head(ValueId x, WeightId weight, WeightId bias = kNoId, float softcap = 0.f);

  Graph take() { return std::move(graph_); }

 private:
  ValueId value(std::string name, std::int64_t rows, std::int64_t width);
  std::int64_t width(ValueId id) const { return graph_.value(id).width; }
  std::int64_t rows(ValueId id) const { return graph_.value(id).rows; }

  Graph graph_;
};

}  // namespace dllm
