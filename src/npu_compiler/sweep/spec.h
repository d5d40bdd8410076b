#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"

namespace dllm::npu {

/// One measured quantity of a point.
struct Metric {
  std::string_view name, unit;
  bool larger_is_better;
};
inline constexpr std::size_t kSweepMetrics = 12;
const std::array<Metric, kSweepMetrics>& sweep_metrics();
/// The index of an existing metric.
std::size_t metric_index(std::string_view name);

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
  /// Which value each axis has at a point, the last axis varying fastest; and the inverse.
  std::vector<std::uint32_t> indices(std::int64_t point) const;
  std::int64_t point(const std::vector<std::uint32_t>& indices) const;
  /// The value of every axis at a point.
  std::vector<std::string> at(std::int64_t point) const;
};

/// Errors: unknown keys, metrics and empty lists with their line; derived keys of a device, more than ten million
/// points.
Expected<SweepSpec> parse_sweep(std::string_view text, const std::string& file);

}  // namespace dllm::npu
