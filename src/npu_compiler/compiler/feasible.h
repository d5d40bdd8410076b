#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "npu_compiler/lowering/mapping.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_compiler/workload/workload.h"

namespace dllm::npu {

struct Device;

/// A laid-out model's use of the device's memory, in bytes.
struct MemoryNeed {
  std::uint64_t weights = 0;
  std::uint64_t cache = 0;  ///< per sequence
  std::uint64_t room = 0;   ///< available for weights and caches
};

/// Parts that fit the device's memories.
struct FittingParts {
  std::vector<RowPart> parts;
  bool overlapped = true;  ///< vector SRAM also holds what CompileOptions::overlap keeps alive; of rows in turn unknown
};

/// Of both kinds of steps of a block.
struct BlockParts {
  std::vector<RowPart> warm, refine;
  std::optional<Mapping> mapping = {};  ///< of both; none: by rule
};

/// Whether steps of one model fit devices, and in which parts. Keeps the model's graphs, their phases and the latest
/// layouts, and counts a step's phases (step_count.h) without emitting an instruction, because sweeps ask about each of
/// their points. Not thread-safe. The functions below answer a single question.
class Feasibility {
 public:
  explicit Feasibility(const ModelShape& shape);
  Feasibility(Feasibility&&) noexcept;
  ~Feasibility();

  /// As the function below.
  Expected<MemoryNeed> memory_need(const Device& device, std::int64_t positions, bool any_sram = false);

  /// The parts of a step that compile_split() would compile, with logits to memory; one part if the step fits at once.
  /// The last layers of a short model show what each further layer keeps in vector SRAM. The whole model is counted
  /// only if they do not, and for the error's words. Errors: those of compile_step() for a single sequence.
  Expected<std::vector<RowPart>> step_parts(const Device& device, const StepSize& step,
                                            const ChoiceAssumption& choices);

  /// All at once, in halves, in quarters, ... under a mapping: those that fit. Errors: as step_parts().
  Expected<std::vector<FittingParts>> fitting_parts(const Device& device, const StepSize& step,
                                                    const ChoiceAssumption& choices, const Mapping& mapping);

  /// Errors: those of step_parts().
  Expected<BlockParts> block_parts(const Device& device, const Workload& workload);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

/// Lays the model out as the compiler does, with the compiler's errors: heads and blocks that the array cannot process,
/// matrices that no SRAM holds, weights beyond the memory. Formats that programs do not support (q4_0, fp16) are
/// replaced by the nearest supported ones. `positions`: per sequence. `any_sram`: as if all matrices, keys and values
/// fitted on chip, because another mapping than the one by rule may fit.
Expected<MemoryNeed> memory_need(const Device& device, const ModelShape& shape, std::int64_t positions,
                                 bool any_sram = false);
/// Elements of an on-chip memory that refuses nothing.
inline constexpr std::uint64_t kAnySram = std::uint64_t{1} << 32;

/// Errors: caches that do not fit in addition to the weights.
Expected<void> check_caches(const MemoryNeed& need, std::int64_t sequences);

/// For models of time that run no program: whether the device can run a step, with its memory, caches and SRAM; and in
/// which parts. Errors: those of `dllm npu step`.
Expected<std::vector<RowPart>> check_feasible(const Device& device, const ModelShape& shape, const StepSize& step,
                                              const ChoiceAssumption& choices);
/// Both steps of a block: a device on which no warm step can be compiled decodes no block.
Expected<BlockParts> check_feasible(const Device& device, const ModelShape& shape, const Workload& workload);

}  // namespace dllm::npu
