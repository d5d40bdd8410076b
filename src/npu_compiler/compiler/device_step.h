#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "npu_compiler/compiler/layout.h"
#include "npu_compiler/compiler/make_step.h"
#include "npu_compiler/compiler/split_step.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_compiler/workload/workload.h"
#include "npu_core/device/device.h"
#include "npu_core/machine/config.h"

namespace dllm::npu {

/// What a denoising step computes.
struct StepRequest {
  StepSize size{.sequences = 16, .rows = 32, .keys = 256};  ///< rows: of a block
  NetworkRows network = {};
  std::int64_t layers = 0;  ///< the first of the shape; 0: all
  CacheKind cache = CacheKind::kDual;
  std::int64_t suffix = -1;       ///< as Workload::suffix
  bool reduced = false;           ///< arg-max and confidence on chip: no logits in memory
  double temperature = 0;         ///< of a reduced head; above 0: draws in the format of lanes, at 1 by confidence
  ChoiceAssumption choices = {};  ///< how rows choose experts
  bool search = false;            ///< the mapping with the least priced time instead of the one by rule
  std::string mappings = "";      ///< directory in which found mappings are kept (cached_mapping())
};

/// A denoising step of a model on a device, compiled.
struct CompiledStep {
  ModelShape shape;
  Device device;
  MachineConfig machine;
  ModelLayout layout;
  SplitStep step;
  StepSize size;                      ///< rows and scored as the cache makes them
  double milliseconds = 0;            ///< of compilation, layout included
  std::optional<double> priced = {};  ///< cycles of the searched mapping; none: by rule
};

/// A step of equal sequences of any graph on a device, compiled.
struct CompiledGraph {
  MachineConfig machine;
  ModelLayout layout;
  SplitStep step;
};

/// Logits go to memory in the device's format unless `options` says otherwise. `mapping`, `parts`: by rule if null and
/// empty. Errors: as compile_step().
Expected<CompiledGraph> compile_graph(const std::function<Graph(StepShape)>& graph, const Device& device,
                                      const StepSize& size, CompileOptions options, const NetworkRows& network = {},
                                      const Mapping* mapping = nullptr, std::span<const RowPart> parts = {});

/// Logits go to memory in the device's format, from which the sampling kernels read them, unless the head is reduced.
/// Errors: kUsage (contradictory numbers), kUnsupported (formats, shapes), kResource (memory).
Expected<CompiledStep> compile_step(ModelShape shape, Device device, const StepRequest& request);

}  // namespace dllm::npu
