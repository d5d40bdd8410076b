#include "npu_compiler/lowering/phases.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/to_size.h"

namespace dllm::npu {
namespace {

/// Products with a bias run separately: the bias is added before anything else reads them.
bool plain(const Graph& graph, const PhaseRules& rules, const op::Linear& o) {
  if (o.bias == kNoId) return true;
  return rules.absent.empty() ? !graph.weight(o.bias).required : rules.absent[to_size(o.bias)];
}

Phase phase_at(const Graph& graph, const GraphPatterns& patterns, const PhaseRules& rules, std::size_t first) {
  Phase phase{.first = first};
  if (rules.fuse) phase.gated = patterns.gated_at(first);
  if (phase.gated && (phase.gated->unit->activation != Activation::kSilu || !plain(graph, rules, *phase.gated->gate) ||
                      !plain(graph, rules, *phase.gated->up)))
    phase.gated.reset();
  if (rules.overlap && !phase.gated) phase.residual = patterns.residual_at(first);
  if (phase.residual && !plain(graph, rules, *phase.residual->product)) phase.residual.reset();
  if (phase.residual && phase.residual->norm != nullptr && phase.residual->norm->gain == kNoId)
    phase.residual->norm = nullptr;
  phase.count = phase.gated ? GatedProducts::kOps : phase.residual ? phase.residual->ops() : 1;
  return phase;
}

/// In place, with one rotation: a head fills its slot, and all of it turns.
bool streams(const op::Rope& o, std::int64_t hlen) { return o.head_dim <= hlen && o.dims == hlen; }

}  // namespace

std::vector<Phase> phases(const Graph& graph, const GraphPatterns& patterns, const PhaseRules& rules) {
  const std::size_t end = rules.segment.end == 0 ? graph.ops.size() : rules.segment.end;
  std::vector<Phase> found;
  std::vector<std::size_t> ropes;  // in a stream
  for (std::size_t i = rules.segment.first; i < end; i += found.back().count) {
    Phase& phase = found.emplace_back(phase_at(graph, patterns, rules, i));
    const Op& any = graph.ops[i];
    if (std::holds_alternative<op::Linear>(any) && phase.count == 1 && rules.overlap) {
      const auto rope = patterns.rope_of(i);
      if (rope && streams(std::get<op::Rope>(graph.ops[*rope]), rules.hlen)) {
        phase.streamed = *rope;
        ropes.push_back(*rope);
      }
    }
    for (const std::size_t rope : ropes) {
      if (rope == i) phase.in_stream = true;
      const auto* const store = std::get_if<op::StoreKv>(&any);
      if (rules.smooth || store == nullptr || store->k != std::get<op::Rope>(graph.ops[rope]).out) continue;
      phase.keys_stored = true;
      std::ranges::find(found, rope, &Phase::streamed)->stored_by = i;
    }
  }
  return found;
}

std::string phase_name(const Graph& graph, const Phase& phase) {
  const Op& any = graph.ops[phase.residual ? phase.first : phase.first + phase.count - 1];
  if (const std::vector<ValueId> out = outputs(any); !out.empty()) return graph.value(out.front()).name;
  if (const auto* store = std::get_if<op::StoreKv>(&any)) return fmt::format("blk.{}.store_kv", store->layer);
  return std::string(op_name(any));
}

std::vector<StreamedMatrix> streamed_matrices(const Graph& graph, const std::vector<Phase>& phases) {
  std::vector<StreamedMatrix> found;
  for (const Phase& phase : phases) {
    const Op& any = graph.ops[phase.first];
    if (phase.gated) {
      found.push_back({phase.first, phase.gated->gate->weight, phase.gated->up->weight});
    } else if (const auto* o = std::get_if<op::Linear>(&any)) {
      found.push_back({phase.first, o->weight});
    } else if (const auto* head = std::get_if<op::ScoreHead>(&any); head != nullptr && graph.value(head->x).rows > 0) {
      found.push_back({phase.first, head->weight});
    } else if (std::holds_alternative<op::Experts>(any)) {
      found.push_back({phase.first});
    }
  }
  return found;
}

}  // namespace dllm::npu
