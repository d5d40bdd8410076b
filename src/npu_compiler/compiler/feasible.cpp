#include "npu_compiler/compiler/feasible.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/try.h"
#include "npu_compiler/compiler/layout.h"
#include "npu_compiler/compiler/make_step.h"
#include "npu_compiler/compiler/split_step.h"
#include "npu_core/device/device.h"
#include "npu_core/machine/device_machine.h"

namespace dllm::npu {
namespace {

/// A laid-out model of some layers, whose steps are compiled to see whether they fit.
struct LaidOut {
  ModelShape shape;
  Graph graph;
  ModelLayout layout;

  static Expected<LaidOut> create(ModelShape shape, const MachineConfig& machine, std::int64_t positions,
                                  const Mapping* mapping) {
    Graph graph = shape.architecture->build(shape.desc, {1, 1});
    std::vector<bool> present;
    for (const WeightDecl& decl : graph.weights) present.push_back(decl.required);
    DLLM_TRY(ModelLayout layout, make_layout(graph, present, machine, positions, mapping));
    return LaidOut{std::move(shape), std::move(graph), std::move(layout)};
  }
  struct Use {
    std::int64_t rows = 0;  ///< of vector SRAM, the most at once
    bool overlapped = false;
  };
  /// Errors: of compile_step().
  Expected<Use> use(const StepSize& size, const CompileOptions& options) const {
    DLLM_TRY(const StepSpec spec, make_step(graph, layout, size));
    const Graph step = shape.architecture->build(shape.desc, {spec.rows(), spec.scored()});
    DLLM_TRY(const StepProgram program, compile_step(step, layout, spec, options));
    return Use{program.vram_rows, program.overlapped};
  }
};

class StepFitter {
 public:
  static Expected<StepFitter> create(const Device& device, const ModelShape& shape, const StepSize& step,
                                     const ChoiceAssumption& choices, const Mapping* mapping) {
    StepFitter fitter;
    if (mapping != nullptr) fitter.mapping_ = *mapping;
    DLLM_TRY(fitter.machine_, machine_config(device));
    fitter.shape_ = shape;
    fitter.size_ = step;
    fitter.size_.sequences = 1, fitter.size_.scored = std::min(step.scored, step.rows);
    fitter.options_.choices = choices;
    if (const auto format = mx_format_from_name(device.numerics.logits)) fitter.options_.logits = *format;
    for (int i = 0; i < 2; ++i) {
      ModelShape few = shape;
      few.desc.layers = std::min(shape.desc.layers, shape.desc.experts.leading_dense + kFewLayers + i);
      DLLM_TRY(fitter.few_[i], LaidOut::create(std::move(few), fitter.machine_, step.keys, mapping));
    }
    return fitter;
  }

  /// Appends the parts of that many sequences, as compile_split() cuts them. Errors: a single one does not fit.
  Expected<void> cut(std::int64_t sequences, std::vector<RowPart>& parts) const {
    const Expected<bool> one = fits(sequences);
    if (one) {
      parts.emplace_back(sequences);
      return {};
    }
    if (one.error().code != ErrorCode::kUsage) return one.error();
    if (sequences == 1) return cut_rows(one.error(), parts);
    DLLM_CHECK_OK(cut(sequences / 2, parts));
    return cut(sequences - sequences / 2, parts);
  }

  /// Halves, quarters, ... of the sequences, as far as they fit; a single sequence's rows only if it must be cut.
  Expected<std::vector<FittingParts>> all(std::int64_t sequences) const {
    std::vector<FittingParts> found;
    std::vector<std::int64_t> sizes = {sequences};
    while (true) {
      const std::int64_t largest = *std::ranges::max_element(sizes);
      const Expected<bool> fitting = fits(largest);
      if (fitting) {
        found.push_back({{sizes.begin(), sizes.end()}, *fitting});
      } else if (fitting.error().code != ErrorCode::kUsage) {
        return fitting.error();
      } else if (largest == 1) {
        std::vector<RowPart> one;
        DLLM_CHECK_OK(cut_rows(fitting.error(), one));
        found.push_back({});
        for (std::int64_t s = 0; s < sequences; ++s)
          found.back().parts.insert(found.back().parts.end(), one.begin(), one.end());
      }
      if (largest == 1) return found;
      std::vector<std::int64_t> halves;
      for (const std::int64_t size : sizes)
        for (const std::int64_t half : {size / 2, size - size / 2})
          if (half > 0) halves.push_back(half);
      sizes = std::move(halves);
    }
  }

 private:
  static constexpr std::int64_t kFewLayers = 2;

  /// Segments of other layers use as much vector SRAM as those of the first ones.
  Expected<void> cut_rows(const Error& whole, std::vector<RowPart>& parts) const {
    if (whole.code != ErrorCode::kUsage) return whole;
    const LaidOut& few = few_[1];
    DLLM_TRY(const StepSpec spec, make_step(few.graph, few.layout, size_));
    const auto build = [&few](StepShape rows) { return few.shape.architecture->build(few.shape.desc, rows); };
    for (const std::vector<RowPart>& cut : row_cuts(few.graph, machine_, spec.sequences.front().positions)) {
      const Expected<SplitStep> step = compile_parts(build, few.layout, spec, cut, options_);
      if (step) {
        parts.insert(parts.end(), cut.begin(), cut.end());
        return {};
      }
      if (step.error().code != ErrorCode::kUsage) return step.error();
    }
    return whole;
  }

  /// Whether work overlaps with products in the compiled step. If a short model's first layers do not fit, the whole
  /// model's do not either, with the same error.
  Expected<bool> fits(std::int64_t sequences) const {
    StepSize size = size_;
    size.sequences = sequences;
    DLLM_TRY(const LaidOut::Use fewer, few_[0].use(size, options_));
    DLLM_TRY(const LaidOut::Use more, few_[1].use(size, options_));
    const std::int64_t left_out = shape_.desc.layers - few_[1].shape.desc.layers;
    // The allocator reserves BLEN rows, into which the last block of a product may write padding.
    const std::int64_t rows =
        static_cast<std::int64_t>(machine_.vram_elements) / machine_.vlen - std::int64_t{machine_.blen};
    if (more.rows + left_out * (more.rows - fewer.rows) <= rows) return more.overlapped;
    DLLM_TRY(const LaidOut whole, LaidOut::create(shape_, machine_, size_.keys, mapping_ ? &*mapping_ : nullptr));
    DLLM_TRY(const LaidOut::Use all, whole.use(size, options_));
    return all.overlapped;
  }

  MachineConfig machine_;
  std::optional<Mapping> mapping_;
  ModelShape shape_;
  StepSize size_;
  CompileOptions options_;
  LaidOut few_[2];
};

}  // namespace

Expected<MemoryNeed> memory_need(const Device& device, const ModelShape& shape, std::int64_t positions, bool any_sram) {
  DLLM_TRY(MachineConfig machine, machine_config(device));
  if (any_sram) machine.mram_elements = machine.vram_elements = kAnySram;
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

Expected<std::vector<RowPart>> step_parts(const Device& device, const ModelShape& shape, const StepSize& step,
                                          const ChoiceAssumption& choices) {
  DLLM_TRY(const StepFitter fitter, StepFitter::create(device, shape, step, choices, nullptr));
  std::vector<RowPart> parts;
  DLLM_CHECK_OK(fitter.cut(step.sequences, parts));
  return parts;
}

Expected<std::vector<FittingParts>> fitting_parts(const Device& device, const ModelShape& shape, const StepSize& step,
                                                  const ChoiceAssumption& choices, const Mapping& mapping) {
  DLLM_TRY(const StepFitter fitter, StepFitter::create(device, shape, step, choices, &mapping));
  return fitter.all(step.sequences);
}

Expected<BlockParts> block_parts(const Device& device, const ModelShape& shape, const Workload& workload) {
  BlockParts parts;
  DLLM_TRY(parts.warm, step_parts(device, shape, warm_step(workload), workload.choices));
  DLLM_TRY(parts.refine, step_parts(device, shape, refine_step(workload), workload.choices));
  return parts;
}

Expected<std::vector<RowPart>> check_feasible(const Device& device, const ModelShape& shape, const StepSize& step,
                                              const ChoiceAssumption& choices) {
  DLLM_TRY(const MemoryNeed need, memory_need(device, shape, step.keys));
  DLLM_CHECK_OK(check_caches(need, step.sequences));
  return step_parts(device, shape, step, choices);
}

Expected<BlockParts> check_feasible(const Device& device, const ModelShape& shape, const Workload& workload) {
  const StepSize warm = warm_step(workload);
  DLLM_TRY(const MemoryNeed need, memory_need(device, shape, warm.keys));
  DLLM_CHECK_OK(check_caches(need, warm.sequences));
  return block_parts(device, shape, workload);
}

}  // namespace dllm::npu
