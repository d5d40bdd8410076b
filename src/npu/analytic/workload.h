#pragma once

#include <optional>
#include <string>

#include "dllm/error.h"
#include "model/architecture.h"
#include "npu/analytic/cost_model.h"
#include "npu/energy/energy.h"

namespace dllm::npu {

/// The shape of a model without its weights, from a TOML file (profiles/models/NAME.toml or a path).
struct ModelShape {
  ModelDesc desc;
  const Architecture* architecture = nullptr;
};
/// Errors: unknown names, keys and architectures; sizes out of range.
Expected<ModelShape> load_model_shape(const std::string& name_or_path);
std::vector<std::string> model_shape_names();

/// Decoding of one block of every sequence of a batch with a cache: a warm step over all positions, then refinement
/// steps over the block (DART's phases, npu-reference D.2).
struct Workload {
  std::int64_t batch = 16;
  std::int64_t block = 32;     ///< positions decoded together, L
  std::int64_t context = 256;  ///< all positions of a sequence, prompt and answer
  std::int64_t steps = 32;     ///< denoising steps per block, the warm one included
  bool fused_head = true;
  ChoiceAssumption choices = {};  ///< how rows choose experts
};
Expected<void> check(const Workload& workload);

/// Shape and load of the two kinds of steps.
StepShape warm_shape(const Workload& workload);
StepShape refine_shape(const Workload& workload);
StepLoad step_load(const Workload& workload);

/// The same work as the energy model wants it.
Work work(const OperatorCost& cost);

/// A block's time and energy on a device.
struct BlockCost {
  StepCost warm, refine;
  StepEnergy warm_energy, refine_energy;
  double seconds = 0, joules = 0;
  double tokens_per_second = 0, tokens_per_joule = 0;
  double serial_seconds = 0;  ///< no overlap at all
};
Expected<BlockCost> evaluate_block(const CostModel& model, const Graph& warm, const Graph& refine,
                                   const Workload& workload);

}  // namespace dllm::npu
