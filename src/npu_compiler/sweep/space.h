#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "npu_compiler/compiler/block_cost.h"
#include "npu_compiler/compiler/feasible.h"
#include "npu_compiler/sweep/spec.h"
#include "npu_core/device/device.h"
#include "npu_core/device/keys.h"

namespace dllm::npu {

using SweepMetrics = std::array<double, kSweepMetrics>;  ///< in the order of sweep_metrics()

/// A design space with everything resolved that its points share: the base profile, each axis value parsed, and,
/// computed on demand, memories with their achieved bandwidth and the layouts of the model. Thread-safe.
class SweepSpace {
 public:
  /// Errors: of the base profile and the model shape.
  static Expected<std::unique_ptr<SweepSpace>> create(const SweepSpec& spec);

  const SweepSpec& spec() const { return spec_; }
  const ModelShape& shape() const { return shape_; }
  /// 64-bit hash of everything that a point's result depends on: equal for points that resolve to the same machine and
  /// workload, in any sweep, and independent of the order of axes.
  std::uint64_t hash(const std::vector<std::uint32_t>& indices) const;

  /// Of all of them, in their order.
  std::uint64_t points_hash() const;

  /// A point's device and workload. Writes every axis, so that a thread can reuse one pair of objects for all points.
  /// Errors: a value that its key does not accept; validate(); check(workload).
  Expected<void> resolve(const std::vector<std::uint32_t>& indices, Device& device, Workload& workload);
  /// The same for any values, starting from the base profile: {"array.blen", "64"}, {"workload.batch", "16"}. Errors:
  /// also unknown and derived keys.
  Expected<void> resolve(std::span<const Override> changes, Device& device, Workload& workload);
  /// GB/s of the device's memory. Errors: of the simulation.
  Expected<double> bandwidth(const Device& device);
  /// As check_feasible(); valid as long as the space. `by` answers what no thread has asked yet: it has the space's
  /// shape(), and belongs to this thread alone.
  Expected<const BlockParts*> feasible(const Device& device, const Workload& workload, Feasibility& by);

  const Device& base() const { return base_; }

 private:
  /// A value of an axis, parsed for its key.
  struct Value {
    std::int64_t integer = 0;
    double number = 0;
    std::string text;
    std::uint64_t hash = 0;
    std::string error;  ///< why its key does not accept it
    std::string hint;
  };
  struct Axis {
    const DeviceKey* field = nullptr;  ///< null: of the workload
    std::int64_t Workload::* member = nullptr;
    std::uint64_t base_hash = 0;  ///< of the base profile's value
    std::vector<Value> values;
  };
  SweepSpace(SweepSpec spec, ModelShape shape, Device base);
  static void store(const DeviceKey& field, const Value& value, Device& device);
  Expected<void> settle(Device& device, const Workload& workload, bool formats, bool memory);
  static Value parse(const DeviceKey& field, const std::string& text);
  static Value parse_workload(const std::string& key, const std::string& text);
  Expected<void> set_memory(Device& device);
  template <class T, class Make>
  Expected<const T*> kept(std::unordered_map<std::uint64_t, Expected<T>>& map, std::uint64_t key, const Make& make);

  SweepSpec spec_;
  ModelShape shape_;
  Device base_;
  std::vector<Axis> axes_;
  bool memory_varies_ = false, formats_vary_ = false;
  std::uint64_t base_hash_ = 0;

  struct Memory {
    dram::MemoryConfig config;
    std::string error, hint, where;
  };
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<const Memory>> memories_;
  std::unordered_map<std::uint64_t, Expected<double>> bandwidths_;
  std::unordered_map<std::uint64_t, Expected<MemoryNeed>> needs_;
  std::unordered_map<std::uint64_t, Expected<BlockParts>> parts_;
};

/// Evaluates points in sequence, for one thread.
class PointEvaluator {
 public:
  explicit PointEvaluator(SweepSpace& space);
  /// Errors: why the point cannot be built.
  Expected<SweepMetrics> evaluate(const std::vector<std::uint32_t>& indices);
  /// A point by its changes of the base profile, for optimizers.
  Expected<SweepMetrics> evaluate(std::span<const Override> changes);

 private:
  Expected<SweepMetrics> evaluate_resolved();

  SweepSpace& space_;
  Device device_;
  Workload workload_;
  GraphTemplate warm_, refine_;
  StepTimes times_;
  Feasibility feasibility_;
};

}  // namespace dllm::npu
