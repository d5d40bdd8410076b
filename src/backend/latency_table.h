#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dllm {

/// The cost of a step by its number of rows, on this machine with this model. Linear between measured points,
/// extrapolated with the last slope, and never decreasing. The part that grows with the context, attention, is one
/// number, because it is linear in rows and in context (docs/guide/decoding.md).
class LatencyTable {
 public:
  struct Point {
    std::int32_t rows = 0;
    double ms = 0;
  };

  /// `points`: at least one, ascending rows >= 1, each measured with rows that see only the step itself. A point
  /// cheaper than one of fewer rows (noise) is raised to it. `ms_per_pair` >= 0: cost of one more visible position for
  /// one row.
  LatencyTable(std::vector<Point> points, double ms_per_pair);

  /// Milliseconds of a step of `rows` scored rows that see `context` positions, themselves included; 0 for no rows. A
  /// smaller context counts as `rows`.
  double estimate_ms(std::int64_t rows, std::int64_t context) const;

  std::span<const Point> points() const { return points_; }
  double ms_per_pair() const { return ms_per_pair_; }

 private:
  std::vector<Point> points_;
  double ms_per_pair_;
};

}  // namespace dllm
