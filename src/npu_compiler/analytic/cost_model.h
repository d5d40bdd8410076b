#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "graph/graph.h"
#include "npu_core/assembler/choices.h"

namespace dllm::npu {

struct Device;
namespace dram {
struct MemoryConfig;
}

/// The parameters of a denoising step beyond its graph's shape.
struct CostAssumptions {
  std::int64_t sequences = 1;     ///< the step's rows are spread evenly over them
  std::int64_t keys = 0;          ///< positions that each row sees
  bool fused_head = true;         ///< the reduction follows the LM head on chip; else logits are written and read back
  ChoiceAssumption choices = {};  ///< how rows choose experts
  /// The parts in which the step runs in sequence, each reading all weights (step_parts()); 0: unknown, then weights
  /// are counted once for each half vector SRAM of activations.
  std::int64_t parts = 0;
};

/// Whether the analytical models support the device's front end: they assume the shipped one. Without this check a
/// sweep could save area with a narrower front end at no cost in time. Errors: kUnsupported, naming the key and `dllm
/// npu step`.
Expected<void> check_modelled(const Device& device);
/// Whether the models of time read a key of a device. False for keys that must have their defaults here
/// ("issue.width"), and for those that only the simulator's time depends on: a sweep over them would save area at no
/// cost in time.
bool is_modelled(std::string_view key);

/// The limiting resource of an operator.
enum class Bound { kMatrix, kVector, kMemory, kHost };
std::string_view bound_name(Bound bound);

/// One operator on one device, in cycles of the device's clock.
struct OperatorCost {
  std::int32_t op = 0;  ///< index into Graph::ops
  std::int64_t macs = 0;
  double lane_ops = 0;                     ///< vector instructions x lanes, for energy
  double read_bytes = 0, write_bytes = 0;  ///< of DRAM
  double weight_bytes = 0;                 ///< included above: of weights

  double matrix = 0;  ///< the array, in whole tiles
  double vector = 0;  ///< pipelined: a vector per cycle and instruction, rows packed into lanes
  double memory = 0;  ///< at the achieved bandwidth
  double host = 0;    ///< dispatch

  double cycles = 0;  ///< max of the three units + host, since they overlap within the operator
  double serial = 0;  ///< one instruction at a time with the published latencies, memory blocking
  /// A bound on every schedule: exact tiles, vector instructions chained into passes, peak bandwidth, no host time.
  double lower_bound = 0;
  double own_bound = 0, least_memory = 0;  ///< the units' share of it, and the memory's
  Bound bound = Bound::kMatrix;
};

/// A step: its operators and three ways to sum them.
struct StepCost {
  std::vector<OperatorCost> operators;
  OperatorCost total;      ///< sums; `cycles`: operators in sequence, with overlap only within each
  double overlapped = 0;   ///< units overlap across operators: max of their sums, + host
  double lower_bound = 0;  ///< max over units of the sums of lower bounds
  double seconds(const Device& device) const;
};

/// Roofline of every operator of a graph (DART, arXiv 2601.20706, section on the analytical model;
/// docs/design/npu-analytic.md). Borrows the device. Construction resolves formats; an evaluation is arithmetic only:
/// tens of nanoseconds per operator. Thread-safe.
class CostModel {
 public:
  /// `device` must outlive the model. `achieved_gbps`: memory bandwidth to assume, e.g. from achieved_bandwidth().
  /// Errors: unknown formats.
  static Expected<CostModel> create(const Device& device, double achieved_gbps);

  /// `alike`: each operator's kind (GraphTemplate::alike()), numbered in order of appearance; each kind is then
  /// evaluated once, and StepCost::operators holds one of each. The sums are bit-identical. Errors: kUnsupported for
  /// operators the model does not know; a load that does not fit the shape.
  Expected<StepCost> evaluate(const Graph& graph, const CostAssumptions& load,
                              std::span<const std::int32_t> alike = {}) const;

  const Device& device() const { return device_; }
  double achieved_gbps() const { return achieved_gbps_; }

 private:
  explicit CostModel(const Device& device) : device_(device) {}
  bool cost(const Graph& graph, const CostAssumptions& load, const Op& op, OperatorCost& cost) const;
  bool whole_cost(const Graph& graph, const CostAssumptions& load, const Op& op, OperatorCost& cost) const;

  const Device& device_;
  double achieved_gbps_ = 0;
};

/// Sequential read bandwidth of a memory, GB/s: simulated with the DRAM model over several refresh intervals. Nothing
/// waits for a client, whose clock does not matter. Takes some ten milliseconds.
Expected<double> stream_bandwidth(const dram::MemoryConfig& memory);
/// That of the device's memory, limited by the DMA engines.
Expected<double> achieved_bandwidth(const Device& device);

/// Array cycles of an M x N x K product in whole tiles: ceil(M/BLEN) ceil(N/BLEN) ceil(K/MLEN) tile_cycles.
double gemm_cycles(const Device& device, std::int64_t m, std::int64_t n, std::int64_t k);

/// Q K^T and P V of `sequences` x `rows` queries over `keys` at BLEN granularity: heads share the array's lanes along
/// the contraction, and the query heads of a KV head share its rows.
double attention_cycles(const Device& device, std::int64_t sequences, std::int64_t rows, std::int64_t keys,
                        std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim);

}  // namespace dllm::npu
