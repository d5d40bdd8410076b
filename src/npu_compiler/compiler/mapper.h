#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "npu_compiler/compiler/feasible.h"
#include "npu_compiler/lowering/mapping.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_compiler/workload/workload.h"

// Searches how a model's steps use the on-chip memories of a device.

namespace dllm::npu {

struct Device;

/// A step that a mapping is for, and how often it runs beside the others.
struct MappedStep {
  StepSize step;
  double times = 1;
};

struct MappingQuestion {
  std::vector<MappedStep> steps = {};
  ChoiceAssumption choices = {};
  bool logits = true;  ///< go to memory
};

/// The mapping with the least priced time (schedule.h), and what it needs to know per step.
struct FoundMapping {
  Mapping mapping;
  std::vector<std::vector<RowPart>> parts;  ///< by step
  double cycles = 0;                        ///< of all steps, each `times`
  std::int64_t priced = 0;                  ///< mappings that were compared; 0: from the cache
};

/// What can be chosen. Every combination whose buffers fit the device's memories is a candidate, whatever the sizes of
/// these memories are: a device that has more of one has all candidates of the smaller one, at the same price, so that
/// its best is never slower. The exception is a step whose experts are streamed with less memory and stay with more.
struct MappingChoices {
  std::vector<PanelChoice> matrices;      ///< shapes, with the largest useful panel of each
  std::vector<std::int64_t> buffers;      ///< rows of matrix SRAM that panels may take, ascending
  std::vector<std::int64_t> chunk_tiles;  ///< ascending; empty: no attention
  std::int64_t key_rows = 0;              ///< of a buffer for K and V, per tile
  std::int64_t expert_rows = 0;           ///< of matrix SRAM, an expert's matrices; 0: no experts
};
/// Errors: those of the layout on a device with enough matrix SRAM.
Expected<MappingChoices> mapping_choices(const Device& device, const ModelShape& shape,
                                         std::span<const MappedStep> steps);

/// For each size of chunks, ring of experts and buffer of panels: starts with the largest panels that the buffer holds
/// and halves those of one shape at a time as long as the price falls. Errors: no mapping fits (those of compile_step()
/// with the mapping by rule); kUnsupported for operators without a schedule.
Expected<FoundMapping> search_mapping(const Device& device, const ModelShape& shape, const MappingQuestion& question);

/// The same from a file in `directory`, where results are kept by shape and device; "": searches.
Expected<FoundMapping> cached_mapping(const Device& device, const ModelShape& shape, const MappingQuestion& question,
                                      const std::string& directory);

/// Both steps of a block share a layout: one mapping for them, with their parts. Errors: also of check_feasible().
Expected<BlockParts> search_block(const Device& device, const ModelShape& shape, const Workload& workload,
                                  const std::string& directory);

}  // namespace dllm::npu
