#include "npu_compiler/runtime/step_memory.h"
#include "npu_core/device/device.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

namespace dllm::npu {
namespace {

/// Bytes of an element of a vector (gains, biases) and of an activation between operators: BF16 or FP16.
constexpr std::int64_t kVectorBytes = 2;

std::vector<WeightId> weights_of(const Op& op) {
  return std::visit(
      [](const auto& o) -> std::vector<WeightId> {
        using O = std::decay_t<decltype(o)>;
        if constexpr (std::is_same_v<O, op::RmsNorm>)
          return {o.gain};
        else if constexpr (std::is_same_v<O, op::LayerNorm>)
          return {o.gain, o.bias};
        else if constexpr (std::is_same_v<O, op::Linear> || std::is_same_v<O, op::ScoreHead>)
          return {o.weight, o.bias};
        else if constexpr (std::is_same_v<O, op::Route>)
          return {o.bias, o.expert_scale};
        else if constexpr (std::is_same_v<O, op::Experts>)
          return {o.gate, o.up, o.down};
        else
          return {};
      },
      op);
}

class StepProgram {
 public:
  StepProgram(const Graph& graph, const Device& device, const CostAssumptions& load) : graph_(graph), device_(device) {
    for (const Value& value : graph.values)
      program_.tensors.push_back({.name = value.name, .bytes = value.rows * value.width * kVectorBytes});
    for (const WeightDecl& weight : graph.weights) add_weight(weight);
    for (const Op& any : graph.ops)
      if (const auto* store = std::get_if<op::StoreKv>(&any)) add_cache(*store, load);
  }

  MemoryProgram take(const StepCost& cost) {
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      MemoryOp one{std::string(op_name(op)), cost.operators[i].cycles / (device_.clock.ghz * 1e9), inputs(op),
                   outputs(op)};
      if (!one.writes.empty()) one.name = graph_.value(one.writes.front()).name;
      for (const WeightId weight : weights_of(op))
        if (weight != kNoId && graph_.weight(weight).required)
          one.reads.push_back(static_cast<std::int32_t>(graph_.values.size()) + weight);
      if (const auto* store = std::get_if<op::StoreKv>(&op)) one.writes.push_back(caches_.at(store->layer));
      if (const auto* attention = std::get_if<op::Attention>(&op)) one.reads.push_back(caches_.at(attention->layer));
      program_.ops.push_back(std::move(one));
    }
    return std::move(program_);
  }

 private:
  void add_weight(const WeightDecl& weight) {
    const bool matrix = weight.shape.size() > 1;
    const double width = matrix ? device_.numerics.weight_bytes : static_cast<double>(kVectorBytes);
    const auto bytes_of = [&](double elements) { return static_cast<std::int64_t>(std::ceil(elements * width)); };
    MemoryTensor tensor{
        .name = weight.name, .bytes = bytes_of(static_cast<double>(element_count(weight.shape))), .lasting = true};
    if (matrix) {
      const std::int64_t outputs = weight.shape.size() > 2 ? weight.shape[1] : device_.array.blen;
      tensor.granule = bytes_of(static_cast<double>(weight.shape[0] * outputs));
    }
    program_.tensors.push_back(std::move(tensor));
  }

  void add_cache(const op::StoreKv& store, const CostAssumptions& load) {
    const auto width = [this](ValueId id) { return graph_.value(id).width; };
    const double elements = static_cast<double>(load.sequences * load.keys * (width(store.k) + width(store.v)));
    caches_[store.layer] = static_cast<std::int32_t>(program_.tensors.size());
    program_.tensors.push_back({.name = fmt::format("blk.{}.kv", store.layer),
                                .bytes = static_cast<std::int64_t>(std::ceil(elements * device_.numerics.kv_bytes)),
                                .lasting = true});
  }

  const Graph& graph_;
  const Device& device_;
  MemoryProgram program_;
  std::map<std::int32_t, std::int32_t> caches_;  ///< by layer, the tensor
};

}  // namespace

Expected<MemoryLimits> memory_limits(const Device& device) {
  const WindowKeys& window = device.window;
  if (window.bytes == 0)
    return Error{ErrorCode::kUnsupported, "the device sees all of its memory, so there is nothing to place",
                 "device " + device.name, "--set window.bytes=N limits it; the mobile profiles have a window"};
  return MemoryLimits{.window_bytes = window.bytes,
                      .staging_bytes = window.staging_bytes,
                      .page_bytes = window.page_bytes,
                      .mapping_bytes = window.mapping_bytes,
                      .mappings = window.mappings,
                      .map_us = window.map_us,
                      .map_us_per_page = window.map_us_per_page};
}

MemoryProgram step_program(const Graph& graph, const Device& device, const CostAssumptions& load,
                           const StepCost& cost) {
  return StepProgram(graph, device, load).take(cost);
}

}  // namespace dllm::npu
