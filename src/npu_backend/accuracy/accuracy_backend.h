#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "dllm/error.h"
#include "model/weights.h"
#include "npu_backend/accuracy/numerics_profile.h"

namespace dllm::npu::accuracy {

/// Runs a model in the number formats of a profile: the accuracy simulator. Every decoder and cache policy works.
/// Logits are reduced on the host, in the profile's sampling precision.
class AccuracyBackend final : public Backend {
 public:
  using GraphFactory = std::function<Graph(StepShape)>;
  /// Called with the fraction of the weights that are in the profile's formats, in [0, 1]; false cancels.
  using Progress = std::function<bool(double)>;

  /// `weights` are views whose owner outlives the backend. Errors: kUsage, kUnsupported (for models that the NPU's
  /// compiler refuses; compiler/layout.h), kCancelled. `progress`: see Progress.
  static Expected<std::unique_ptr<AccuracyBackend>> create(ModelDesc desc, GraphFactory graph, Weights weights,
                                                           NumericsProfile profile, int threads,
                                                           const Progress& progress = {});
  ~AccuracyBackend() override;

  const ModelDesc& desc() const override;
  bool runs_shadows() const override { return true; }
  /// Not where K and V are smoothed: a branch's factors would be those of other rows.
  bool runs_branches() const override;
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override;
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override;
  /// For second paths: between caches of one backend with equal capacities. Precondition: the profile does not smooth.
  static void copy_rows(const KvCache& from, KvCache& to, std::span<const Position> positions);
  const NumericsProfile& profile() const;

 private:
  class Impl;
  explicit AccuracyBackend(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dllm::npu::accuracy
