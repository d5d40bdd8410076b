#include "app/bench/stats.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <nlohmann/json.hpp>

namespace dllm::app {
namespace {

double median_of(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

Summary summarize(std::vector<double> samples) {
  assert(!samples.empty());
  Summary summary;
  summary.count = samples.size();
  summary.median = median_of(samples);
  summary.min = samples.front();  // sorted by now
  summary.max = samples.back();
  for (double& sample : samples) sample = std::fabs(sample - summary.median);
  summary.mad = median_of(samples);
  return summary;
}

nlohmann::ordered_json summary_json(const std::vector<double>& samples, double factor) {
  const Summary s = summarize(samples);
  std::vector<double> scaled = samples;
  for (double& sample : scaled) sample *= factor;
  return {{"median", s.median * factor},
          {"min", s.min * factor},
          {"max", s.max * factor},
          {"mad", s.mad * factor},
          {"samples", scaled}};
}

}  // namespace dllm::app
