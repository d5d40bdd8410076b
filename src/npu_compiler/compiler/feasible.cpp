#include "npu_compiler/compiler/feasible.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "npu_compiler/compiler/layout.h"
#include "npu_compiler/compiler/workload_step.h"
#include "npu_core/device/device.h"
#include "npu_core/machine/device_machine.h"

namespace dllm::npu {
namespace {

/// A laid-out model of some layers, whose steps are compiled to see whether they fit.
struct LaidOut {
  ModelShape shape;
  Graph graph;
  ModelLayout layout;

  static Expected<LaidOut> create(ModelShape shape, const MachineConfig& machine, std::int64_t positions) {
    Graph graph = shape.architecture->build(shape.desc, {1, 1});
    std::vector<bool> present;
    for (const WeightDecl& decl : graph.weights) present.push_back(decl.required);
    DLLM_TRY(ModelLayout layout, make_layout(graph, present, machine, positions));
    return LaidOut{std::move(shape), std::move(graph), std::move(layout)};
  }
  /// Largest number of vector SRAM rows in use during the step. Errors: of compile_step().
  Expected<std::int64_t> rows_used(const StepWorkload& work, const CompileOptions& options) const {
    DLLM_TRY(const StepSpec spec, make_step(graph, layout, work));
    const Graph step = shape.architecture->build(shape.desc, {spec.rows(), spec.scored()});
    DLLM_TRY(const StepProgram program, compile_step(step, layout, spec, options));
    return program.vram_rows;
  }
};

class StepFitter {
 public:
  static Expected<StepFitter> create(const Device& device, const ModelShape& shape, const RegularStep& step,
                                     const ChoiceAssumption& choices) {
    StepFitter fitter;
    DLLM_TRY(fitter.machine_, machine_config(device));
    fitter.shape_ = shape;
    fitter.work_ = {.batch = 1, .rows = step.rows, .context = step.keys, .scored = std::min(step.scored, step.rows)};
    fitter.options_.choices = choices;
    if (const auto format = mx_format_from_name(device.numerics.logits)) fitter.options_.logits = *format;
    for (int i = 0; i < 2; ++i) {
      ModelShape few = shape;
      few.desc.layers = std::min(shape.desc.layers, shape.desc.experts.leading_dense + kFewLayers + i);
      DLLM_TRY(fitter.few_[i], LaidOut::create(std::move(few), fitter.machine_, step.keys));
    }
    return fitter;
  }

  /// Appends the parts of that many sequences, as compile_split() cuts them. Errors: a single one does not fit.
  Expected<void> cut(std::int64_t sequences, std::vector<std::int64_t>& parts) const {
    const Expected<void> one = fits(sequences);
    if (one) {
      parts.push_back(sequences);
      return {};
    }
    if (one.error().code != ErrorCode::kUsage || sequences == 1) return one;
    DLLM_CHECK_OK(cut(sequences / 2, parts));
    return cut(sequences - sequences / 2, parts);
  }

 private:
  static constexpr std::int64_t kFewLayers = 2;

  /// If a short model's first layers do not fit, the whole model's do not either, with the same error.
  Expected<void> fits(std::int64_t sequences) const {
    StepWorkload work = work_;
    work.batch = sequences;
    DLLM_TRY(const std::int64_t fewer, few_[0].rows_used(work, options_));
    DLLM_TRY(const std::int64_t more, few_[1].rows_used(work, options_));
    const std::int64_t left_out = shape_.desc.layers - few_[1].shape.desc.layers;
    // The allocator reserves BLEN rows, into which the last block of a product may write padding.
    const std::int64_t rows =
        static_cast<std::int64_t>(machine_.vram_elements) / machine_.vlen - std::int64_t{machine_.blen};
    if (more + left_out * (more - fewer) <= rows) return {};
    DLLM_TRY(const LaidOut whole, LaidOut::create(shape_, machine_, work_.context));
    DLLM_TRY(const std::int64_t all, whole.rows_used(work, options_));
    (void)all;
    return {};
  }

  MachineConfig machine_;
  ModelShape shape_;
  StepWorkload work_;
  CompileOptions options_;
  LaidOut few_[2];
};

}  // namespace

Expected<MemoryNeed> memory_need(const Device& device, const ModelShape& shape, std::int64_t positions) {
  DLLM_TRY(const MachineConfig machine, machine_config(device));
  const Graph graph = shape.architecture->build(shape.desc, {1, 1});
  std::vector<bool> present;
  for (const WeightDecl& decl : graph.weights) present.push_back(decl.required);
  DLLM_TRY(const ModelLayout layout, make_layout(graph, present, machine, positions));
  DLLM_TRY(const KvLayout kv, kv_layout(graph, layout, positions));
  return MemoryNeed{layout.weight_bytes, kv.bytes, layout.step_base};
}

Expected<void> check_caches(const MemoryNeed& need, std::int64_t sequences) {
  if (need.weights + static_cast<std::uint64_t>(sequences) * need.cache <= need.room) return {};
  return Error{
      ErrorCode::kUsage,
      fmt::format("{} caches of {} bytes do not fit next to {} bytes of weights", sequences, need.cache, need.weights),
      "npu compiler", "a smaller batch or context"};
}

Expected<std::vector<std::int64_t>> step_parts(const Device& device, const ModelShape& shape, const RegularStep& step,
                                               const ChoiceAssumption& choices) {
  DLLM_TRY(const StepFitter fitter, StepFitter::create(device, shape, step, choices));
  std::vector<std::int64_t> parts;
  DLLM_CHECK_OK(fitter.cut(step.sequences, parts));
  return parts;
}

Expected<BlockParts> block_parts(const Device& device, const ModelShape& shape, const Workload& workload) {
  BlockParts parts;
  DLLM_TRY(parts.warm, step_parts(device, shape, warm_step(workload), workload.choices));
  DLLM_TRY(parts.refine, step_parts(device, shape, refine_step(workload), workload.choices));
  return parts;
}

Expected<std::vector<std::int64_t>> check_feasible(const Device& device, const ModelShape& shape,
                                                   const RegularStep& step, const ChoiceAssumption& choices) {
  DLLM_TRY(const MemoryNeed need, memory_need(device, shape, step.keys));
  DLLM_CHECK_OK(check_caches(need, step.sequences));
  return step_parts(device, shape, step, choices);
}

Expected<BlockParts> check_feasible(const Device& device, const ModelShape& shape, const Workload& workload) {
  const RegularStep warm = warm_step(workload);
  DLLM_TRY(const MemoryNeed need, memory_need(device, shape, warm.keys));
  DLLM_CHECK_OK(check_caches(need, warm.sequences));
  return block_parts(device, shape, workload);
}

}  // namespace dllm::npu
