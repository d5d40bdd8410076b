#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dllm::npu {

struct PlotLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< in the order of x
};

/// Lines with markers over one axis as SVG text. `log_x`: powers of two are equidistant. y begins at 0, or is also
/// logarithmic.
std::string line_plot(std::string_view title, std::string_view x_label, std::string_view y_label,
                      const std::vector<PlotLine>& lines, bool log_x, bool log_y = false);

}  // namespace dllm::npu
