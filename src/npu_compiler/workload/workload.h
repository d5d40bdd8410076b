#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "dllm/error.h"
#include "graph/step_size.h"
#include "model/architecture.h"
#include "npu_core/assembler/choices.h"

namespace dllm::npu {

/// Which positions the steps after the first of a block run (Fast-dLLM, arXiv 2505.22618).
enum class CacheKind : std::uint8_t {
  kNone,    ///< all of the context
  kPrefix,  ///< the block and everything after it; keys and values before it are kept
  kDual,    ///< the block; keys and values of all other positions are kept
};
std::string_view cache_name(CacheKind kind);
/// "none", "prefix", "dual"; nullopt for others.
std::optional<CacheKind> cache_from_name(std::string_view name);

/// Decoding of one block for every sequence of a batch with a cache: a warm step over all positions, then refinement
/// steps over the block (the phases of DART, arXiv 2601.20706).
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

/// Some rows of a step that run at once, while weights are read once for them.
struct RowPart {
  std::int64_t sequences = 1;
  /// Of a single sequence: rows [first, first + rows), which take turns with the sequence's other rows. 0: all.
  std::int64_t first = 0, rows = 0;
  RowPart(std::int64_t of, std::int64_t begin = 0, std::int64_t count = 0) : sequences(of), first(begin), rows(count) {}
  bool operator==(const RowPart&) const = default;
};
/// The two kinds of steps of a block.
StepSize warm_step(const Workload& workload);
StepSize refine_step(const Workload& workload);
/// Their shapes.
StepShape warm_shape(const Workload& workload);
StepShape refine_shape(const Workload& workload);

}  // namespace dllm::npu
