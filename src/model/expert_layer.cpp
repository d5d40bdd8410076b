#include "model/expert_layer.h"

#include <fmt/format.h>

#include "base/try.h"

namespace dllm {

std::string down_name(std::string_view part, std::int64_t order) {
  return std::string(part) + std::string(order == 0 ? "" : kRotatedSuffix);
}

ValueId build_expert_layer(GraphBuilder& b, const ModelDesc& desc, ValueId x, std::int64_t layer) {
  const ExpertsDesc& e = desc.experts;
  const auto name = [layer](std::string_view part) { return fmt::format("blk.{}.{}", layer, part); };
  const auto linear = [&](ValueId from, std::string_view part, std::int64_t in, std::int64_t out) {
    return b.linear(from, b.weight(name(part) + ".weight", {in, out}), name(part));
  };
  const ValueId logits = linear(x, "ffn_gate_inp", desc.width, e.count);
  const WeightId bias = b.optional_weight(name("exp_probs_b.bias"), {e.count});
  const ValueId route = b.route(logits,
                                {.logits = kNoId,
                                 .bias = bias,
                                 .used = static_cast<std::int32_t>(e.used),
                                 .score = e.score,
                                 .groups = static_cast<std::int32_t>(e.groups),
                                 .groups_used = static_cast<std::int32_t>(e.groups_used),
                                 .capacity = static_cast<std::int32_t>(e.capacity),
                                 .block = desc.causal_block,
                                 .normalize = e.normalize,
                                 .scale = e.scale,
                                 .out = kNoId},
                                name("ffn_route"));
  const WeightId gate = b.weight(name("ffn_gate_exps.weight"), {desc.width, e.width, e.count});
  const WeightId up = b.weight(name("ffn_up_exps.weight"), {desc.width, e.width, e.count});
  const WeightId down =
      b.weight(name(down_name("ffn_down_exps", desc.online.down_experts) + ".weight"), {e.width, desc.width, e.count});
  const ValueId routed = b.experts(x,
                                   {.x = kNoId,
                                    .route = route,
                                    .gate = gate,
                                    .up = up,
                                    .down = down,
                                    .out = kNoId,
                                    .hadamard = static_cast<std::int32_t>(desc.online.down_experts)},
                                   name("ffn_exps"));
  if (e.shared_width == 0) return routed;
  const ValueId shared_gate = linear(x, "ffn_gate_shexp", desc.width, e.shared_width);
  const ValueId shared_up = linear(x, "ffn_up_shexp", desc.width, e.shared_width);
  const std::int64_t order = desc.online.down_shared;
  const ValueId act =
      b.hadamard(b.glu(shared_gate, shared_up, name("ffn_act_shexp")), order, name("ffn_hadamard_shexp"));
  const ValueId shared = linear(act, down_name("ffn_down_shexp", order), e.shared_width, desc.width);
  return b.add(routed, shared, name("ffn_experts"));
}

void set_expert_metadata(std::string_view arch, const ExpertsDesc& experts, Metadata& meta) {
  const auto set = [&](std::string_view tail, MetaValue value) {
    meta.set(fmt::format("{}.{}", arch, tail), std::move(value));
  };
  const auto count = [&](std::string_view tail, std::int64_t value) {
    set(tail, MetaValue::u32(static_cast<std::uint32_t>(value)));
  };
  count("expert_count", experts.count);
  count("expert_used_count", experts.used);
  count("expert_feed_forward_length", experts.width);
  if (experts.shared_width > 0) {
    count("expert_shared_count", 1);
    count("expert_shared_feed_forward_length", experts.shared_width);
  }
  if (experts.leading_dense > 0) count("leading_dense_block_count", experts.leading_dense);
  count("expert_gating_func", experts.score == GateScore::kSoftmax ? 1 : 2);
  // Written even if zero: readers have their own defaults for models of this name.
  count("expert_group_count", experts.groups);
  count("expert_group_used_count", experts.groups_used);
  if (experts.capacity > 0) count("expert_capacity", experts.capacity);
  set("expert_weights_norm", MetaValue::boolean(experts.normalize));
  set("expert_weights_scale", MetaValue::f32(experts.scale));
}

std::vector<TensorRename> expert_renames(bool shared) {
  std::vector<TensorRename> renames = {
      {"model.layers.{}.mlp.gate", "blk.{}.ffn_gate_inp"},
      {"model.layers.{}.mlp.gate.expert_bias", "blk.{}.exp_probs_b.bias"},
      {"model.layers.{}.mlp.experts.{}.gate_proj", "blk.{}.ffn_gate_exps"},
      {"model.layers.{}.mlp.experts.{}.up_proj", "blk.{}.ffn_up_exps"},
      {"model.layers.{}.mlp.experts.{}.down_proj", "blk.{}.ffn_down_exps"},
  };
  if (shared)
    renames.insert(renames.end(), {{"model.layers.{}.mlp.shared_experts.gate_proj", "blk.{}.ffn_gate_shexp"},
                                   {"model.layers.{}.mlp.shared_experts.up_proj", "blk.{}.ffn_up_shexp"},
                                   {"model.layers.{}.mlp.shared_experts.down_proj", "blk.{}.ffn_down_shexp"}});
  return renames;
}

Expected<ExpertsDesc> experts_from_hf(const HfConfig& config) {
  ExpertsDesc experts;
  DLLM_TRY(experts.count, config.integer("num_experts"));
  DLLM_TRY(experts.used, config.integer("num_experts_per_tok"));
  DLLM_TRY(experts.width, config.integer("moe_intermediate_size"));
  DLLM_TRY(experts.normalize, config.boolean_or("norm_topk_prob", false));
  return experts;
}

}  // namespace dllm
