#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "npu/analytic/workload.h"
#include "npu/device/device.h"

namespace dllm::npu {

/// One measured quantity of a point.
struct Metric {
  std::string_view name, unit;
  bool larger_is_better;
};
const std::vector<Metric>& sweep_metrics();

/// A design space: the product of all lists in a TOML file.
///
///   name = "array"
///   model = "llada-8b"
///   [device]
///   base = "dart-2048"
///   "array.blen" = [32, 64, 128]
///   "memory.stacks" = [1, 2, 4]
///   [workload]
///   batch = [1, 16]
///   [limits]
///   area_mm2 = 80           # points above are marked, not dropped
///   [plot]
///   x = "area_mm2"
///   y = "tokens_per_second"
struct SweepSpec {
  std::string name, model, base;
  struct Axis {
    std::string key;                  ///< "array.blen" or "workload.batch"
    std::vector<std::string> values;  ///< TOML texts
  };
  std::vector<Axis> axes;
  struct Limit {
    std::string metric;
    double value;
  };
  std::vector<Limit> limits;
  std::string plot_x = "area_mm2", plot_y = "tokens_per_second";

  std::int64_t points() const;
  /// The value of every axis at a point, the last axis running fastest.
  std::vector<std::string> at(std::int64_t point) const;
};

/// Errors: unknown keys, metrics and empty lists with their line; more than a million points.
Expected<SweepSpec> parse_sweep(std::string_view text, const std::string& file);

/// A point with everything resolved. Points that resolve to the same configuration have the same hash.
struct SweepPoint {
  Device device;
  Workload workload;
  std::string configuration;  ///< JSON of all that the result depends on
  std::string hash;           ///< of it, 16 hexadecimal digits
};
/// Errors: what the device profile's checks object to.
Expected<SweepPoint> resolve_point(const SweepSpec& spec, const ModelShape& shape, std::int64_t point);

}  // namespace dllm::npu
