#include "npu_core/sampling/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/svg_plot.h"

namespace dllm::npu {
namespace {

constexpr std::string_view kColours[] = {"#4878a8", "#c04020", "#508040", "#806090"};
constexpr PlotLayout kLayout{.width = 640, .height = 400, .left = 80, .right = 620, .top = 40, .bottom = 340};

std::string thousands(double value) {
  return value >= 1024 && std::fmod(value, 1024) == 0 ? fmt::format("{:g}k", value / 1024) : fmt::format("{:g}", value);
}

PlotScale x_scale(const std::set<double>& xs, bool log) {
  const double low = log ? std::max(*xs.begin(), 1e-9) : 0, high = *xs.rbegin();
  return {low, high > low ? high : low + 1, kLayout.left + 10, kLayout.right - 10, log};
}

PlotScale y_scale(double bottom, double top, bool log) {
  if (log && bottom > 0) return {bottom / 1.25, top * 1.25, kLayout.bottom, kLayout.top, true};
  const double step = tick_step(top);
  return {0, std::ceil(top / step) * step, kLayout.bottom, kLayout.top};
}

}  // namespace

std::string line_plot(std::string_view title, std::string_view x_label, std::string_view y_label,
                      const std::vector<PlotLine>& lines, bool log_x, bool log_y) {
  std::set<double> xs;
  double top = 0, bottom = 1e300;
  for (const PlotLine& line : lines)
    for (const auto& [x, y] : line.points) {
      xs.insert(x);
      top = std::max(top, y), bottom = std::min(bottom, y);
    }
  SvgPlot plot(kLayout, title);
  if (xs.empty() || !(top > 0)) return std::move(plot).take();
  const PlotScale sx = x_scale(xs, log_x);
  const PlotScale sy = y_scale(bottom, top, log_y);
  plot.y_grid(sy);
  double last = -100;
  for (const double x : xs) {
    const bool room = sx(x) - last >= 28;  // labels must not overlap
    plot.x_grid_line(sx(x), room ? thousands(x) : "");
    if (room) last = sx(x);
  }
  plot.axis_names(x_label, y_label);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view colour = kColours[i % std::size(kColours)];
    std::vector<std::pair<double, double>> path;
    for (const auto& [x, y] : lines[i].points) path.emplace_back(sx(x), sy(y));
    plot.polyline(path, colour, i % 2 == 1 && lines.size() > 2);  // dashed: a line that it covers is seen
    for (std::size_t p = 0; p < path.size(); ++p) {
      const auto& [x, y] = lines[i].points[p];
      plot.circle(path[p].first, path[p].second, 3, colour, fmt::format("{}: {:g}, {:.4g}", lines[i].name, x, y));
    }
    plot.text(kLayout.left + 12, kLayout.top + 16 + 16 * static_cast<double>(i), lines[i].name, colour);
  }
  return std::move(plot).take();
}

}  // namespace dllm::npu
