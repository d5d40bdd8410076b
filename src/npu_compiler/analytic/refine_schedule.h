#pragma once

#include <optional>
#include <span>
#include <vector>

#include "graph/graph.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_compiler/workload/workload.h"

namespace dllm::npu {

struct Device;

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

/// The scheduled time (schedule.h) of a workload's steps after the first. As layers repeat, two short models that
/// differ by one layer give the time of the whole one.
class RefineSchedule {
 public:
  explicit RefineSchedule(const ModelShape& shape);

  /// Cycles; nullopt if there is no schedule: operators without one, and devices that unpack weights with vector code,
  /// that a host dispatches operator by operator, or that see memory through a window. `parts`: sequences of each part
  /// of the step (step_parts()); empty: all run at once.
  std::optional<double> cycles(const Device& device, const Workload& workload, double gbps,
                               std::span<const std::int64_t> parts = {});

 private:
  std::optional<double> part_cycles(const Device& device, const Workload& workload, double gbps);

  GraphTemplate fewer_, more_;
  double left_out_ = 0;  ///< layers
};

}  // namespace dllm::npu
