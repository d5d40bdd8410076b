#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dllm {

/// What a step of so many rows costs on this machine with this model. Between the measured rows the cost is linear,
/// beyond the last it goes on with the last slope; it never falls with more rows. The part
/// that grows with the context, attention, is one number: it is linear in rows and in context (docs/guide/decoding.md).
class LatencyTable {
 public:
  struct Point {
    std::int32_t rows = 0;
    double ms = 0;
  };

  /// `points`: ascending rows >= 1, at least one, each measured where the step's rows see only
  /// themselves. A point cheaper than one of fewer rows (noise) is lifted to it. `ms_per_pair` >= 0: cost of one more
  /// visible position for one row.
  LatencyTable(std::vector<Point> points, double ms_per_pair);

  /// Milliseconds of a step of `rows` scored rows that see `context` positions, themselves included; 0 for no rows.
  /// A context below the rows counts as the rows.
  double estimate_ms(std::int64_t rows, std::int64_t context) const;

  std::span<const Point> points() const { return points_; }
  double ms_per_pair() const { return ms_per_pair_; }

 private:
  std::vector<Point> points_;
  double ms_per_pair_;
};

}  // namespace dllm
