#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dllm/error.h"

struct sqlite3;

namespace dllm::npu {

/// A point's outcome: metrics in the order of sweep_metrics(), or why there are none.
struct SweepResult {
  std::string hash, configuration;
  std::vector<double> metrics;
  std::string error;  ///< empty: evaluated
};

/// Results of sweeps in a SQLite file, one row per configuration hash, so that a sweep can stop and go on, and sweeps
/// that overlap share their points. Not thread-safe.
class SweepStore {
 public:
  /// Creates the file if needed. Errors: kIo; a file with other columns.
  static Expected<SweepStore> open(const std::string& path);

  Expected<std::optional<SweepResult>> find(const std::string& hash) const;
  /// All or nothing: a killed sweep loses at most one batch.
  Expected<void> add(const std::vector<SweepResult>& results);

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  explicit SweepStore(std::unique_ptr<sqlite3, Close> database) : database_(std::move(database)) {}
  Error error(const std::string& what) const;
  std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace dllm::npu
