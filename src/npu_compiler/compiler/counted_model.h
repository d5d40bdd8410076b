#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "npu_compiler/analytic/model_schedule.h"
#include "npu_compiler/compiler/layout.h"
#include "npu_compiler/compiler/step_count.h"
#include "npu_compiler/lowering/kept_lowering.h"
#include "npu_compiler/lowering/segments.h"
#include "npu_compiler/workload/model_shape.h"

namespace dllm::npu {

/// A model of some layers, whose steps are counted (step_count.h). Not thread-safe.
class CountedModel {
 public:
  /// `layers`: at most; 0: all of the model's.
  CountedModel(const ModelShape& shape, std::int64_t layers);
  CountedModel(const CountedModel&) = delete;
  CountedModel& operator=(const CountedModel&) = delete;
  const Graph& graph() { return graph_.with({1, 1}); }

  /// For one position. Errors: those of the layout, but weights may exceed the memory.
  Expected<ModelLayout> layout(const MachineConfig& machine, const Mapping* mapping);
  /// Errors: of compile_step().
  Expected<StepUse> use(const ModelLayout& layout, const StepSpec& spec, const CompileOptions& options);
  /// Of one sequence whose rows all see the same positions. Its rows take turns in each segment, as compile_parts()
  /// has them; turns of equally many rows need the same, and are counted once. Errors: of compile_step().
  Expected<void> use_rows(const ModelLayout& layout, const StepSpec& spec, std::span<const RowPart> cut,
                          CompileOptions options);
  /// Rows of vector SRAM that every program of the step takes at least, without counting the step: those of all values
  /// that wait when attention begins, or a layer's last product does.
  std::int64_t least_rows(const ModelLayout& layout, const StepSpec& spec) const;
  /// Whether `longer` has `layers` more than this one, each like that which `one_more` has.
  bool repeats(CountedModel& one_more, CountedModel& longer, std::int64_t layers);

 private:
  /// Bytes for what waits between segments.
  std::uint64_t spill(const ModelLayout& layout, const StepSpec& some);
  /// Operators, widths of values, elements of weights.
  std::array<std::int64_t, 3> size();

  /// Values of the same rows that wait at once.
  struct Waiting {
    std::vector<ValueId> all, scored;
  };

  GraphTemplate graph_;
  KeptLowering lowering_;
  std::vector<bool> present_;
  std::vector<Segment> segments_;
  std::vector<std::vector<ValueId>> waiting_;  ///< before each segment but the first
  std::vector<Waiting> together_;              ///< for least_rows()
};

}  // namespace dllm::npu
