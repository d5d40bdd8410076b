#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "eval/comparison.h"

namespace dllm {

/// The measure of cost.
enum class PlotAxis { kTokensPerSecond, kMilliseconds, kPasses, kRows };

/// Names for flags, in the order of the enumeration.
std::vector<std::string> plot_axis_names();
PlotAxis plot_axis(std::string_view name);  ///< precondition: one of the names

/// Accuracy and cost as a self-contained SVG, one line per configuration, cheapest first: the difference to the first
/// of `rows` in percentage points with its paired 95 % interval, coloured where that excludes zero, and the cost.
std::string accuracy_plot(const std::vector<ComparisonRow>& rows, PlotAxis axis, std::string_view title);

}  // namespace dllm
