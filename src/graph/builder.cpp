#include "graph/builder.h"

#include <utility>

namespace dllm {

WeightId GraphBuilder::weight(std::string name, Shape shape) {
  graph_.weights.push_back({std::move(name), std::move(shape), true});
  return static_cast<WeightId>(graph_.weights.size()) - 1;
}

WeightId GraphBuilder::optional_weight(std::string name, Shape shape) {
  graph_.weights.push_back({std::move(name), std::move(shape), false});
  return static_cast<WeightId>(graph_.weights.size()) - 1;
}

ValueId GraphBuilder::value(std::string name, std::int64_t row_count, std::int64_t value_width) {
  graph_.values.push_back({std::move(name), row_count, value_width});
  return static_cast<ValueId>(graph_.values.size()) - 1;
}

ValueId GraphBuilder::embed(WeightId table, std::string name, float scale, EmbedPart part) {
  const std::int64_t row_width = graph_.weight(table).shape[0];
  const ValueId out = value(std::move(name), graph_.shape.rows, row_width);
  graph_.ops.push_back(op::Embed{table, out, scale, part});
  return out;
}

ValueId GraphBuilder::rms_norm(ValueId x, WeightId gain, float eps, std::string name, std::int32_t groups) {
  const ValueId out = value(std::move(name), rows(x), width(x));
  graph_.ops.push_back(op::RmsNorm{x, gain, eps, groups, out});
  return out;
}

ValueId GraphBuilder::layer_norm(ValueId x, WeightId gain, WeightId bias, float eps, std::string name) {
  const ValueId out = value(std::move(name), rows(x), width(x));
  graph_.ops.push_back(op::LayerNorm{x, gain, bias, eps, out});
  return out;
}

ValueId GraphBuilder::linear(ValueId x, WeightId weight_id, std::string name, WeightId bias) {
  const std::int64_t out_width = graph_.weight(weight_id).shape[1];
  const ValueId out = value(std::move(name), rows(x), out_width);
  graph_.ops.push_back(op::Linear{x, weight_id, bias, out});
  return out;
}

ValueId GraphBuilder::rope(ValueId x, op::Rope spec, std::string name) {
  spec.x = x;
  spec.out = value(std::move(name), rows(x), width(x));
  graph_.ops.push_back(spec);
  return spec.out;
}

ValueId GraphBuilder::hadamard(ValueId x, std::int64_t order, std::string name) {
  if (order == 0) return x;
  const ValueId out = value(std::move(name), rows(x), width(x));
  graph_.ops.push_back(op::Hadamard{x, static_cast<std::int32_t>(order), out});
  return out;
}

void GraphBuilder::store_kv(ValueId k, ValueId v, std::int32_t layer) {
  graph_.ops.push_back(op::StoreKv{k, v, layer});
}

ValueId GraphBuilder::attention(ValueId q, op::Attention spec, std::string name) {
  spec.q = q;
  spec.out = value(std::move(name), rows(q), width(q));
  graph_.ops.push_back(spec);
  return spec.out;
}

ValueId GraphBuilder::glu(ValueId gate, ValueId up, std::string name, Activation activation) {
  const ValueId out = value(std::move(name), rows(gate), width(gate));
  graph_.ops.push_back(op::Glu{gate, up, out, activation});
  return out;
}

ValueId GraphBuilder::add(ValueId a, ValueId b, std::string name) {
  const ValueId out = value(std::move(name), rows(a), width(a));
  graph_.ops.push_back(op::Add{a, b, out});
  return out;
}

ValueId GraphBuilder::scale(ValueId x, op::Scale spec, std::string name) {
  spec.x = x;
  spec.out = value(std::move(name), rows(x), width(x));
  graph_.ops.push_back(spec);
  return spec.out;
}

ValueId GraphBuilder::select(ValueId canvas, ValueId context, std::string name) {
  const ValueId out = value(std::move(name), rows(canvas), width(canvas));
  graph_.ops.push_back(op::Select{canvas, context, out});
  return out;
}

ValueId GraphBuilder::route(ValueId logits, op::Route spec, std::string name) {
  spec.logits = logits;
  spec.out = value(std::move(name), rows(logits), 2 * std::int64_t{spec.used});
  graph_.ops.push_back(spec);
  return spec.out;
}

ValueId GraphBuilder::experts(ValueId x, op::Experts spec, std::string name) {
  spec.x = x;
  const ValueId out = value(std::move(name), rows(x), graph_.weight(spec.down).shape[1]);
  spec.out = out;
  graph_.ops.push_back(std::move(spec));
  return out;
}

ValueId GraphBuilder::hidden_in(std::int64_t row_width, std::string name) {
  const std::int64_t first = hidden_in_width(graph_);
  const ValueId out = value(std::move(name), graph_.shape.rows, row_width);
  graph_.ops.push_back(op::HiddenIn{out, first});
  return out;
}

void GraphBuilder::hidden_out(ValueId x) { graph_.ops.push_back(op::HiddenOut{x, hidden_width(graph_)}); }

ValueId GraphBuilder::block_conv(ValueId x, ValueId dynamic, op::BlockConv spec, std::string name) {
  spec.x = x;
  spec.dynamic = dynamic;
  spec.out = value(std::move(name), rows(x), width(x));
  graph_.ops.push_back(spec);
  return spec.out;
}

ValueId GraphBuilder::gather_scored(ValueId x, std::string name) {
  const ValueId out = value(std::move(name), graph_.shape.scored, width(x));
  graph_.ops.push_back(op::GatherScored{x, out});
  return out;
}

void GraphBuilder::score_head(ValueId x, WeightId weight_id, WeightId bias, float softcap) {
  graph_.ops.push_back(op::ScoreHead{x, weight_id, bias, softcap});
}

}  // namespace dllm
