#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "eval/comparison.h"

namespace dllm {

/// What the horizontal axis shows.
enum class PlotAxis { kTokensPerSecond, kMilliseconds, kPasses, kRows };

/// Names for flags, in the order of the enumeration.
std::vector<std::string> plot_axis_names();
PlotAxis plot_axis(std::string_view name);  ///< precondition: one of the names

/// Accuracy (percent, with 95 % intervals) against cost or speed as a self-contained SVG: one point per configuration,
/// its name beside it where it does not cover another. The configurations that none beats in both are joined by a line.
std::string accuracy_plot(const std::vector<ComparisonRow>& rows, PlotAxis axis, std::string_view title);

}  // namespace dllm
