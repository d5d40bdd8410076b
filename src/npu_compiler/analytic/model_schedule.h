#pragma once

#include <memory>
#include <span>
#include <vector>

#include "dllm/error.h"
#include "graph/graph.h"
#include "npu_compiler/analytic/schedule.h"
#include "npu_compiler/lowering/kept_lowering.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_compiler/workload/workload.h"

namespace dllm::npu {

struct Device;

/// Whether some layers have a window and others have none (ModelDesc::sliding): few of them do not stand for all.
bool has_two_kinds_of_layers(const ModelDesc& desc);

/// A graph of a model with adjustable numbers of rows: building one takes a millisecond, setting rows a microsecond.
class GraphTemplate {
 public:
  /// `layers`: at most; 0: all of the model's.
  explicit GraphTemplate(const ModelShape& shape, std::int64_t layers = 0);
  const Graph& with(StepShape shape);
  /// The kind of each operator: operators of a kind differ in their layer only.
  std::span<const std::int32_t> alike() const { return alike_; }

 private:
  Graph graph_;
  std::vector<std::int32_t> alike_;
  std::vector<std::size_t> of_all_, of_scored_;  ///< values
};

/// The scheduled time (schedule.h) of a model's steps. As layers repeat, two short models that differ by one layer give
/// the time of the whole one, unless layers are of two kinds.
class ModelSchedule {
 public:
  explicit ModelSchedule(const ModelShape& shape);

  /// Cycles of the device. `like`: everything but sequences and keys. `parts`: of the step (step_parts()); empty: all
  /// run at once. Errors: those of schedule_step().
  Expected<double> cycles(const Device& device, const StepSize& step, const ScheduleAssumptions& like,
                          std::span<const RowPart> parts = {});

 private:
  Expected<double> part_cycles(const Device& device, const StepSize& step, ScheduleAssumptions load);
  Expected<double> row_cycles(const Device& device, const StepSize& step, const RowPart& part,
                              ScheduleAssumptions load);

  /// A model of some layers, with what is kept of its lowering.
  struct Short {
    Short(const ModelShape& shape, std::int64_t layers) : graph(shape, layers), lowering(graph.with({1, 1})) {}
    GraphTemplate graph;
    KeptLowering lowering;
  };
  std::unique_ptr<Short> fewer_, more_;  // what is kept of a lowering borrows its graph
  double left_out_ = 0;                  ///< layers
};

}  // namespace dllm::npu
