#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "dllm/generate.h"
#include "dllm/scheduler.h"

namespace dllm::serve {

/// Counts and durations of requests, for Prometheus. Thread-safe.
class Metrics {
 public:
  /// What is counted elsewhere.
  struct Elsewhere {
    std::int64_t capacity = 0;  ///< K/V positions that fit at once
    std::size_t connections = 0;
    std::uint64_t lost_log_lines = 0;
  };

  void answered(const std::string& path, int status, double seconds);
  /// A finished generation, and the seconds from its submission to its first text.
  void generated(const Generation& generation, double first_text_seconds);

  /// Prometheus' text format, version 0.0.4.
  std::string text(const SchedulerCounters& counters, const Elsewhere& elsewhere) const;

 private:
  struct Histogram {
    static constexpr std::array<double, 11> kBounds = {0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 300};
    std::array<std::uint64_t, kBounds.size() + 1> counts{};
    double sum = 0;
    void add(double seconds);
    void print(std::string& out, const char* name, const char* help) const;
  };
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::uint64_t> requests_;
  Histogram request_, first_text_, step_;
};

}  // namespace dllm::serve
