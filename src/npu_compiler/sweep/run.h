#pragma once

#include <functional>
#include <string>
#include <vector>

#include "npu_compiler/sweep/space.h"
#include "npu_compiler/sweep/spec.h"
#include "npu_compiler/sweep/store.h"

namespace dllm::npu {

/// A point of a sweep with its result; 120 bytes, so that ten million fit into memory.
struct SweepRow {
  std::int64_t point = 0;
  std::uint64_t hash = 0;
  SweepMetrics metrics = {};
  std::uint32_t error = 0;       ///< index into SweepReport::errors; 0: evaluated
  std::int16_t over_limit = -1;  ///< index into SweepSpec::limits, the first one exceeded; -1: none
  bool pareto = false;           ///< no other point is at least as good in both plotted metrics and better in one
};

/// A point of the front whose programs were simulated (simulated_front.h).
struct SimulatedPoint {
  std::int64_t point = 0;
  double warm_ms = 0, refine_ms = 0;  ///< of the device alone, with the searched mapping
};

struct SweepReport {
  std::vector<SweepRow> rows;       ///< in the order of the points
  std::vector<std::string> errors;  ///< each reason once; [0] is ""
  std::int64_t evaluated = 0, reused = 0, duplicates = 0, invalid = 0;
  std::vector<SimulatedPoint> simulated = {};  ///< ascending; empty: the front was not simulated
};

/// Called between batches; false stops the sweep; finished batches are kept.
using SweepProgress = std::function<bool(std::int64_t done, std::int64_t all)>;

/// Points [first, first + count) of a space; count 0: to its end.
struct SweepRange {
  std::int64_t first = 0, count = 0;
};

/// Evaluates what the store lacks on `threads` threads. The result does not depend on their number. Errors: of the
/// model shape and the store; a range outside the space; kCancelled by progress. Points that cannot be built become
/// rows with an error.
Expected<SweepReport> run_sweep(const SweepSpec& spec, SweepStore& store, int threads, const SweepProgress& progress,
                                SweepRange range = {});

/// A search instead of the whole grid.
struct SearchOptions {
  std::int64_t budget = 0;  ///< maximum number of evaluated points; 0: a twentieth of the grid, at least 64
  std::uint64_t seed = 1;
};

/// The Pareto front of the plotted metrics by NSGA-II (Deb, Pratap, Agarwal and Meyarivan, IEEE TEVC 6(2), 2002) over
/// the axes' indices, where half of each generation are neighbours of the current front (Pareto local search). The
/// report contains the evaluated points, ascending. Deterministic for a seed. Errors: as run_sweep().
Expected<SweepReport> search_sweep(const SweepSpec& spec, SweepStore& store, int threads, const SearchOptions& options,
                                   const SweepProgress& progress);

/// One line per row: axes, metrics, over_limit, pareto, hash, error.
std::string sweep_csv(const SweepSpec& spec, const SweepReport& report);

/// The spec's two metrics with the Pareto front, as SVG text: each point with its configuration, or above 2000 points
/// their density; the front is numbered, with a legend. At most about 0.5 MB.
std::string sweep_svg(const SweepSpec& spec, const SweepReport& report);

/// Marks the Pareto front among rows without error and within limits. Exposed for tests.
void mark_pareto(std::vector<SweepRow>& rows, std::size_t x, std::size_t y);

/// Limits and the front of a report; call once at the end.
void finish_sweep(const SweepSpec& spec, SweepReport& report);
/// The first limit that a row exceeds; -1: none.
std::int16_t over_limit(const SweepSpec& spec, const SweepRow& row);

/// Evaluates points batch by batch, each configuration once, and stores new results. For grid and search.
class SweepRunner {
 public:
  /// Errors: of the space and the store.
  static Expected<SweepRunner> create(const SweepSpec& spec, SweepStore& store, int threads);
  SweepRunner(SweepRunner&&) noexcept;
  ~SweepRunner();

  /// Fills in the results of rows whose `point` is set. Errors: of the store.
  Expected<void> evaluate(SweepRow* rows, std::size_t count, SweepReport& report);

 private:
  struct State;
  explicit SweepRunner(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dllm::npu
