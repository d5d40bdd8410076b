#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

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
/// Also by the names of `dllm make-model`. Errors: unknown names, keys and architectures; sizes out of range.
Expected<ModelShape> load_model_shape(const std::string& name_or_path);
/// Those of the shipped TOML files.
std::vector<std::string> model_shape_names();
/// Whether load_model_shape() knows it without a file of the user's.
bool is_model_shape(const std::string& name);

/// Decoding of one block for every sequence of a batch with a cache: a warm step over all positions, then refinement
/// steps over the block (the phases of DART, arXiv 2601.20706).
/// Which positions the steps after the first of a block run (Fast-dLLM, arXiv 2505.22618).
enum class CacheKind : std::uint8_t {
  kNone,    ///< all of the context
  kPrefix,  ///< the block and everything after it; keys and values before it are kept
  kDual,    ///< the block; keys and values of all other positions are kept
};
std::string_view cache_name(CacheKind kind);
/// "none", "prefix", "dual"; nullopt for others.
std::optional<CacheKind> cache_from_name(std::string_view name);

struct Workload {
  std::int64_t batch = 16;
  std::int64_t block = 32;     ///< positions decoded together, L
  std::int64_t context = 256;  ///< all positions of a sequence, prompt and answer
  std::int64_t steps = 32;     ///< denoising steps per block, including the warm one
  bool fused_head = true;
  ChoiceAssumption choices = {};  ///< how rows choose experts
  CacheKind cache = CacheKind::kDual;
  std::int64_t suffix = -1;  ///< positions after the block, which a prefix cache recomputes; -1: usual_suffix()
};
Expected<void> check(const Workload& workload);

/// Half of what follows the first block of an answer that takes half of the context: the mean over its blocks.
std::int64_t usual_suffix(std::int64_t block, std::int64_t context);
/// Positions of each sequence that a step after the first runs.
std::int64_t refine_rows(const Workload& workload);

/// Shape and load of the two kinds of steps.
StepShape warm_shape(const Workload& workload);
StepShape refine_shape(const Workload& workload);
StepLoad step_load(const Workload& workload);

/// The same work in the energy model's terms. Instructions are estimated: three per tile of the array, two per vector
/// instruction.
Work work(const Device& device, const OperatorCost& cost);

/// A block's time and energy on a device: a first step over all positions, then steps - 1 of refine_rows().
struct BlockCost {
  StepCost warm, refine;
  StepEnergy warm_energy, refine_energy;
  double warm_seconds = 0, refine_seconds = 0;  ///< of a step
  std::optional<double> scheduled;              ///< cycles of a refinement step, if it has a schedule
  double seconds = 0, joules = 0;
  double tokens_per_second = 0, tokens_per_joule = 0;
  double serial_seconds = 0;  ///< without any overlap
};
/// `scheduled`: cycles of a step after the first in the compiler's schedule (refine_schedule.h); without it, the bound
/// with all units overlapped is used. `parts`: of that step, as in StepLoad. `alike`: as in CostModel::evaluate(), the
/// same for both graphs.
Expected<BlockCost> evaluate_block(const CostModel& model, const Graph& warm, const Graph& refine,
                                   const Workload& workload, std::optional<double> scheduled = std::nullopt,
                                   std::int64_t parts = 0, std::span<const std::int32_t> alike = {});

}  // namespace dllm::npu
