#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "npu_compiler/sweep/spec.h"

struct sqlite3;

namespace dllm::npu {

/// A point's result: metrics in the order of sweep_metrics(), or why there are none.
struct SweepResult {
  std::uint64_t hash = 0;
  std::array<double, kSweepMetrics> metrics = {};
  std::string error;  ///< empty: evaluated
};

/// Results of sweeps in a SQLite file (table `points`, a column per metric), one row per configuration hash, so that a
/// sweep can be interrupted and continued, and overlapping sweeps share points. Not thread-safe.
class SweepStore {
 public:
  /// Creates the file if needed; if that fails, leaves none. Errors: kIo; a file with other columns; kUsage, what
  /// would be created is no regular file (a dangling link).
  static Expected<SweepStore> open(const std::string& path);

  /// All results, sorted by hash: a scan of the file, a microsecond each.
  Expected<std::vector<SweepResult>> all() const;
  /// All or nothing: a killed sweep loses at most one batch.
  Expected<void> add(const std::vector<SweepResult>& results);

  /// Packed results of a finished sweep, in parts, so that a million points are read as fast as a file. Each replaces
  /// the one before. nullopt: there is none.
  Expected<void> keep_finished(std::uint64_t sweep, const std::vector<std::string>& parts);
  Expected<std::optional<std::vector<std::string>>> finished(std::uint64_t sweep) const;

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  explicit SweepStore(std::unique_ptr<sqlite3, Close> database) : database_(std::move(database)) {}
  static Expected<SweepStore> open_tables(const std::string& path);
  Error error(const std::string& what) const;
  Expected<void> commit(bool ok);  ///< or rolls back
  std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace dllm::npu
