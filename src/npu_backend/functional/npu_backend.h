#pragma once

#include <functional>
#include <memory>

#include "backend/backend.h"
#include "dllm/error.h"
#include "model/weights.h"
#include "npu_compiler/compiler/step.h"
#include "npu_core/machine/machine.h"

namespace dllm::npu {

/// Runs a linked program in the state of a backend's machine: constants and tokens are in its HBM and INT_MEM,
/// registers are reset. Afterwards the step's results must be in HBM. For other executors of the same programs than
/// Machine::run(), such as hardware in simulation.
using ProgramExecutor = std::function<Expected<RunResult>(Machine&, const Program&)>;

struct NpuOptions {
  std::int64_t positions = 0;    ///< length of the position tables; 0: the model's context, at most 4096
  std::size_t programs = 64;     ///< size of the cache of compiled steps
  ProgramExecutor execute = {};  ///< empty: Machine::run()
};

/// statistics
struct NpuCounters {
  std::uint64_t steps = 0;         ///< programs run
  std::uint64_t compiled = 0;      ///< of these, newly compiled
  std::uint64_t instructions = 0;  ///< executed
};

/// Runs a model's steps as compiled programs on the functional machine. Every step of every decoder and cache policy is
/// a plan over positions, so all of them work. Programs are cached by the shape of their plan; token ids are data.
/// Logits are reduced on the host.
class NpuBackend final : public Backend {
 public:
  using GraphFactory = std::function<Graph(StepShape)>;

  /// `weights` are read once, into the machine's memory. Errors: kUsage, kUnsupported (layout.h), kResource.
  static Expected<std::unique_ptr<NpuBackend>> create(ModelDesc desc, GraphFactory graph, const Weights& weights,
                                                      const MachineConfig& machine, const NpuOptions& options = {});
  ~NpuBackend() override;

  const ModelDesc& desc() const override;
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override;
  /// A batch that does not fit into vector SRAM is split in halves. Errors: kUsage (one sequence's step does not fit).
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override;

  /// For second paths: between caches of one backend with equal capacities. Precondition: the device does not smooth.
  static void copy_rows(const KvCache& from, KvCache& to, std::span<const Position> positions);

  const ModelLayout& layout() const;
  const NpuCounters& counters() const;

 private:
  class Impl;
  explicit NpuBackend(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dllm::npu
