#pragma once

#include <string>
#include <vector>

#include "npu_compiler/analytic/cost_model.h"
#include "npu_compiler/workload/workload.h"

namespace dllm::npu {

/// A GPU as a roofline: published peaks of its data sheet, and the fraction of them that is assumed to be reached.
struct GpuProfile {
  std::string name, summary, source;
  double tflops = 0;     ///< dense, BF16 (or FP16) matrix units, 1e12 operations per second
  double gbps = 0;       ///< memory
  double watts = 0;      ///< thermal design power, drawn throughout
  double memory_gb = 0;  ///< 1e9 bytes
  double compute_efficiency = 1, memory_efficiency = 1;  ///< of the peaks; 1: an upper bound of the GPU
};

/// A shipped profile by name (profiles/gpus), or a TOML file by path. Errors: unknown names and keys; numbers that are
/// not positive.
Expected<GpuProfile> load_gpu(const std::string& name_or_path);
std::vector<std::string> gpu_names();

/// A block of a workload on a GPU. Operators run in sequence; each takes the larger of its operations at the peak and
/// its bytes at the bandwidth. Weights, keys, values and activations are BF16 (2 bytes), and every operator reads and
/// writes its activations once. Logits are written in BF16 and read by the sampling; the rest of sampling, and kernel
/// launches, are not counted.
struct GpuCost {
  double warm_seconds = 0, refine_seconds = 0;
  double seconds = 0, joules = 0;
  double tokens_per_second = 0, tokens_per_joule = 0;
};
/// Errors: a model whose caches exceed the memory; operators as in CostModel.
Expected<GpuCost> evaluate_gpu(const GpuProfile& gpu, const Graph& warm, const Graph& refine, const Workload& workload);

}  // namespace dllm::npu
