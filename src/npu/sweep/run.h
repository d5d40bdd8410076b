#pragma once

#include <functional>
#include <string>
#include <vector>

#include "npu/sweep/spec.h"
#include "npu/sweep/store.h"

namespace dllm::npu {

/// Every point of a sweep with its outcome.
struct SweepRow {
  std::vector<std::string> values;  ///< of the axes
  SweepResult result;
  std::string over_limit;  ///< the first limit it exceeds; empty: none
  bool pareto = false;     ///< no other point is at least as good in both plotted metrics and better in one
};

struct SweepReport {
  std::vector<SweepRow> rows;  ///< in the order of the points
  std::int64_t evaluated = 0, reused = 0, duplicates = 0, invalid = 0;
};

/// Called between batches; false stops the sweep, whose finished batches are kept.
using SweepProgress = std::function<bool(std::int64_t done, std::int64_t all)>;

/// Evaluates what the store lacks on `threads` threads. The result does not depend on their number. Errors: of the
/// model shape and the store; kCancelled if progress said so. Points that cannot be built are rows with an error.
Expected<SweepReport> run_sweep(const SweepSpec& spec, SweepStore& store, int threads, const SweepProgress& progress);

/// One line per point: axes, metrics, over_limit, pareto, hash, error.
std::string sweep_csv(const SweepSpec& spec, const SweepReport& report);

/// Scatter plot of the spec's two metrics with the Pareto front, as SVG text.
std::string sweep_svg(const SweepSpec& spec, const SweepReport& report);

/// Marks the Pareto front among rows without error and within limits. Exposed for tests.
void mark_pareto(std::vector<SweepRow>& rows, std::size_t x, std::size_t y);

std::size_t metric_index(std::string_view name);

}  // namespace dllm::npu
