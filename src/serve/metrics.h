#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dllm/generate.h"
#include "dllm/model.h"
#include "dllm/ranks.h"
#include "dllm/scheduler.h"

namespace dllm::serve {

/// Counts and durations of requests, for Prometheus. Thread-safe.
class Metrics {
 public:
  /// What is counted elsewhere.
  struct Elsewhere {
    std::size_t connections = 0;
    std::uint64_t lost_log_lines = 0;
    std::optional<std::size_t> loaded{};  ///< models; absent: the server has one
  };
  struct OfModel {
    std::string name;  ///< a label of its values; empty: none
    SchedulerCounters counters{};
    std::int64_t capacity = 0;  ///< K/V positions that fit at once; 0: it is not loaded
    std::optional<DeviceStatus> device{};
    std::optional<RanksStatus> ranks{};
  };

  void answered(const std::string& path, int status, double seconds);
  /// A finished generation, and the seconds from its submission to its first text. `model`: as in OfModel.
  void generated(const std::string& model, const Generation& generation, double first_text_seconds);
  /// An event of a model: "loaded", "unloaded", "failed".
  void counted(const std::string& model, const std::string& event);

  /// Prometheus' text format, version 0.0.4.
  std::string text(const std::vector<OfModel>& models, const Elsewhere& elsewhere) const;

 private:
  struct Histogram {
    static constexpr std::array<double, 11> kBounds = {0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 300};
    std::array<std::uint64_t, kBounds.size() + 1> counts{};
    double sum = 0;
    void add(double seconds);
    void print(std::string& out, const char* name, const std::string& model) const;
  };
  struct Times {
    Histogram first_text, step;
  };
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::uint64_t> requests_;
  Histogram request_;
  std::map<std::string, Times> generations_;                             ///< by model
  std::map<std::pair<std::string, std::string>, std::uint64_t> events_;  ///< by event and model
};

}  // namespace dllm::serve
