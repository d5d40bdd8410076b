#include "backend/latency_table.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

namespace dllm {

LatencyTable::LatencyTable(std::vector<Point> points, double ms_per_pair)
    : points_(std::move(points)), ms_per_pair_(ms_per_pair) {
  assert(!points_.empty() && points_.front().rows >= 1 && ms_per_pair_ >= 0);
  for (std::size_t i = 1; i < points_.size(); ++i) {
    assert(points_[i].rows > points_[i - 1].rows);
    points_[i].ms = std::max(points_[i].ms, points_[i - 1].ms);
  }
}

double LatencyTable::estimate_ms(std::int64_t rows, std::int64_t context) const {
  if (rows <= 0) return 0;
  const auto line = [](const Point& a, const Point& b, double at) {
    const double slope = (b.ms - a.ms) / static_cast<double>(b.rows - a.rows);
    return a.ms + slope * (at - static_cast<double>(a.rows));
  };
  const double pairs = static_cast<double>(rows) * static_cast<double>(std::max(context, rows) - rows);
  const double more = ms_per_pair_ * pairs;
  const auto next = std::lower_bound(points_.begin(), points_.end(), rows,
                                     [](const Point& point, std::int64_t count) { return point.rows < count; });
  if (next == points_.begin() || (next == points_.end() && points_.size() == 1)) {
    // One point gives no slope: take the cost as proportional to the rows, an overestimate for larger steps.
    const Point& only = points_.front();
    const double scale = next == points_.begin() ? 1.0 : static_cast<double>(rows) / only.rows;
    return only.ms * scale + more;
  }
  const auto at = static_cast<double>(rows);
  if (next == points_.end()) return line(*std::prev(next, 2), points_.back(), at) + more;
  return line(*std::prev(next), *next, at) + more;
}

}  // namespace dllm
