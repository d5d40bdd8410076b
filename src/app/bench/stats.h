#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace dllm::app {

/// Repeated measurements of the same thing. Median and median absolute deviation, because disturbances can lengthen
/// single runs by any amount, which would shift a mean.
struct Summary {
  std::size_t count = 0;
  double median = 0;
  double min = 0;
  double max = 0;
  double mad = 0;  ///< median of |x - median|; 0 for a single sample
};

/// Precondition: not empty.
Summary summarize(std::vector<double> samples);

/// {"median": …, "min": …, "max": …, "mad": …, "samples": […]}, each times `factor`.
nlohmann::ordered_json summary_json(const std::vector<double>& samples, double factor);

}  // namespace dllm::app
