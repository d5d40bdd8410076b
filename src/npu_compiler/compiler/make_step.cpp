#include "npu_compiler/compiler/make_step.h"

#include <fmt/format.h>

#include <utility>

#include "base/try.h"
#include "npu_compiler/compiler/feasible.h"

namespace dllm::npu {

Expected<StepSpec> step_of(const StepSize& size, const NetworkRows& network) {
  const std::int64_t sequences = size.sequences, rows = size.rows, keys = size.keys;
  const std::int64_t scored = size.scored_rows();
  if (sequences < 1 || rows < 1 || keys < rows || scored > rows)
    return Error{ErrorCode::kUsage,
                 fmt::format("batch {}, {} rows of a context of {}, {} of them scored", sequences, rows, keys, scored),
                 "npu compiler", "each at least 1, rows within the context"};
  SequenceSpec s;
  for (std::int64_t p = keys - rows; p < keys; ++p) s.positions.push_back(static_cast<Position>(p));
  s.scored = network.scored;
  for (std::int64_t i = rows - scored; i < rows && network.scored.empty(); ++i)
    s.scored.push_back(static_cast<std::int32_t>(i));
  s.visible = {{0, static_cast<Position>(network.visible < 0 ? keys : network.visible)}};
  s.causal_block = network.causal_block;
  s.capacity = keys;
  s.canvas = true;
  s.takes_statistics = takes_statistics(rows, keys);
  StepSpec spec;
  spec.sequences.assign(static_cast<std::size_t>(sequences), s);
  return spec;
}

Expected<void> check_caches(const MemoryNeed& need, std::int64_t sequences) {
  if (need.weights + static_cast<std::uint64_t>(sequences) * need.cache <= need.room) return {};
  return Error{
      ErrorCode::kUsage,
      fmt::format("{} caches of {} bytes do not fit next to {} bytes of weights", sequences, need.cache, need.weights),
      "npu compiler", "a smaller batch or context"};
}

Expected<StepSpec> make_step(const Graph& graph, const ModelLayout& layout, const StepSize& size,
                             const NetworkRows& network) {
  DLLM_TRY(StepSpec spec, step_of(size, network));
  DLLM_TRY(const KvLayout kv, kv_layout(graph, layout, size.keys));
  DLLM_CHECK_OK(check_caches({layout.weight_bytes, kv.bytes, layout.step_base}, size.sequences));
  std::uint64_t cache = layout.weight_bytes;
  for (SequenceSpec& s : spec.sequences) s.cache = std::exchange(cache, cache + kv.bytes);
  return spec;
}

}  // namespace dllm::npu
