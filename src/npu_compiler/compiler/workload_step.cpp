#include "npu_compiler/compiler/workload_step.h"

#include <fmt/format.h>

#include "base/try.h"
#include "npu_compiler/compiler/feasible.h"

namespace dllm::npu {

Expected<StepSpec> make_step(const Graph& graph, const ModelLayout& layout, const StepWorkload& w) {
  const std::int64_t scored = w.scored < 0 ? w.rows : w.scored;
  if (w.batch < 1 || w.rows < 1 || w.context < w.rows || scored > w.rows)
    return Error{
        ErrorCode::kUsage,
        fmt::format("batch {}, {} rows of a context of {}, {} of them scored", w.batch, w.rows, w.context, scored),
        "npu compiler", "each at least 1, rows within the context"};
  DLLM_TRY(const KvLayout kv, kv_layout(graph, layout, w.context));
  DLLM_CHECK_OK(check_caches({layout.weight_bytes, kv.bytes, layout.step_base}, w.batch));
  StepSpec spec;
  for (std::int64_t b = 0; b < w.batch; ++b) {
    SequenceSpec s;
    for (std::int64_t p = w.context - w.rows; p < w.context; ++p) s.positions.push_back(static_cast<Position>(p));
    s.scored = w.scored_rows;
    for (std::int64_t i = w.rows - scored; i < w.rows && w.scored_rows.empty(); ++i)
      s.scored.push_back(static_cast<std::int32_t>(i));
    s.visible = {{0, static_cast<Position>(w.visible < 0 ? w.context : w.visible)}};
    s.causal_block = w.causal_block;
    s.cache = layout.weight_bytes + static_cast<std::uint64_t>(b) * kv.bytes;
    s.capacity = w.context;
    s.takes_statistics = takes_statistics(w.rows, w.context);
    spec.sequences.push_back(std::move(s));
  }
  return spec;
}

}  // namespace dllm::npu
