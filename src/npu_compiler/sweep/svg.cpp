// The points of a sweep over two metrics, or their density, with the Pareto front as a numbered line and a legend.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/svg_plot.h"
#include "npu_compiler/sweep/run.h"

namespace dllm::npu {
namespace {

constexpr std::size_t kMostCircles = 2000;  ///< above: density
constexpr double kCell = 5;                 ///< of the density, in pixels
constexpr int kShades = 6;
constexpr std::size_t kMostLabels = 16;
constexpr double kLegendLine = 15;
constexpr const char *kFront = "#c04020", *kPoint = "#4878a8", *kBeyond = "#bbb";

PlotScale scale_of(const std::vector<double>& values, double from, double to) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double span = *high > *low ? *high - *low : std::max(1.0, std::abs(*high));
  const double below = *low - 0.05 * span;
  return {*low >= 0 ? std::max(below, 0.0) : below, *high + 0.05 * span, from, to};
}

struct View {
  const SweepSpec& spec;
  const SweepReport& report;
  const PlotLayout& layout;
  std::size_t x, y;
  PlotScale sx, sy;

  double at_x(const SweepRow& row) const { return sx(row.metrics[x]); }
  double at_y(const SweepRow& row) const { return sy(row.metrics[y]); }
};

std::string tip_of(const SweepSpec& spec, const SweepRow& row) {
  const std::vector<std::string> values = spec.at(row.point);
  std::string tip;
  for (std::size_t a = 0; a < values.size(); ++a)
    tip += fmt::format("{}{} = {}", a == 0 ? "" : "\n", spec.axes[a].key, values[a]);
  return tip;
}

void draw_points(SvgPlot& plot, const View& view) {
  for (const SweepRow& row : view.report.rows) {
    if (row.error != 0) continue;
    const char* colour = row.pareto ? kFront : row.over_limit < 0 ? kPoint : kBeyond;
    plot.circle(view.at_x(row), view.at_y(row), row.pareto ? 5 : 3, colour, tip_of(view.spec, row));
  }
}

/// Points per cell in logarithmic shades: a path for each shade.
void draw_density(SvgPlot& plot, const View& view) {
  const PlotLayout& box = view.layout;
  const auto columns = static_cast<std::size_t>((box.right - box.left) / kCell) + 1,
             lines = static_cast<std::size_t>((box.bottom - box.top) / kCell) + 1;
  std::vector<std::uint32_t> count(columns * lines), beyond(columns * lines);
  std::uint32_t most = 1;
  for (const SweepRow& row : view.report.rows) {
    if (row.error != 0) continue;
    const auto cx = static_cast<std::size_t>(std::max(0.0, (view.at_x(row) - box.left) / kCell)),
               cy = static_cast<std::size_t>(std::max(0.0, (view.at_y(row) - box.top) / kCell));
    const std::size_t cell = std::min(cy, lines - 1) * columns + std::min(cx, columns - 1);
    ++(row.over_limit < 0 ? count : beyond)[cell];
    most = std::max(most, count[cell]);
  }
  const auto fill = [&](const auto& wanted, const char* colour, double opacity) {
    std::string d;
    for (std::size_t cell = 0; cell < count.size(); ++cell)
      if (wanted(cell))
        d += fmt::format("M{:.0f} {:.0f}h5v5h-5z", box.left + kCell * static_cast<double>(cell % columns),
                         box.top + kCell * static_cast<double>(cell / columns));
    if (!d.empty()) plot.area(d, colour, opacity);
  };
  fill([&](std::size_t cell) { return count[cell] == 0 && beyond[cell] > 0; }, kBeyond, 0.5);
  const double whole = std::log(static_cast<double>(most) + 1);
  const auto shade = [&](std::uint32_t n) {
    return n == 0 ? -1 : std::min(kShades - 1, static_cast<int>(kShades * std::log(static_cast<double>(n)) / whole));
  };
  for (int s = 0; s < kShades; ++s)
    fill([&](std::size_t cell) { return shade(count[cell]) == s; }, kPoint, 0.25 + 0.75 * s / (kShades - 1));
}

/// Numbers at points spread evenly along the front; below, their figures and the axes in which they differ.
void draw_legend(SvgPlot& plot, const View& view, const std::vector<const SweepRow*>& front, double top) {
  std::vector<const SweepRow*> named;
  const std::size_t count = std::min(front.size(), kMostLabels);
  for (std::size_t i = 0; i < count; ++i) named.push_back(front[count == 1 ? 0 : i * (front.size() - 1) / (count - 1)]);
  std::vector<std::vector<std::string>> values;
  for (const SweepRow* row : named) values.push_back(view.spec.at(row->point));
  for (std::size_t i = 0; i < named.size(); ++i) {
    plot.text(view.at_x(*named[i]) - 4, view.at_y(*named[i]) - 8, std::to_string(i + 1), "#802010", 10);
    std::string line =
        fmt::format("{}: {:.5g} {}, {:.5g} {}", i + 1, named[i]->metrics[view.x], sweep_metrics()[view.x].unit,
                    named[i]->metrics[view.y], sweep_metrics()[view.y].unit);
    for (std::size_t a = 0; a < view.spec.axes.size(); ++a)
      if (std::any_of(values.begin(), values.end(), [&](const auto& v) { return v[a] != values[0][a]; }))
        line += fmt::format("; {} {}", view.spec.axes[a].key, values[i][a]);
    plot.text(view.layout.left, top + kLegendLine * static_cast<double>(i), line, "#333", 10);
  }
}

/// Points of the front, left to right; those with the same figures are shown as one.
std::vector<const SweepRow*> front_of(const SweepReport& report, std::size_t x, std::size_t y) {
  std::vector<const SweepRow*> front;
  for (const SweepRow& row : report.rows)
    if (row.error == 0 && row.pareto) front.push_back(&row);
  const auto figures = [&](const SweepRow* row) { return std::pair(row->metrics[x], row->metrics[y]); };
  std::sort(front.begin(), front.end(), [&](const SweepRow* a, const SweepRow* b) { return figures(a) < figures(b); });
  front.erase(std::unique(front.begin(), front.end(),
                          [&](const SweepRow* a, const SweepRow* b) { return figures(a) == figures(b); }),
              front.end());
  return front;
}

}  // namespace

std::string sweep_svg(const SweepSpec& spec, const SweepReport& report) {
  const std::size_t x = metric_index(spec.plot_x), y = metric_index(spec.plot_y);
  std::vector<double> xs, ys;
  for (const SweepRow& row : report.rows)
    if (row.error == 0) {
      xs.push_back(row.metrics[x]);
      ys.push_back(row.metrics[y]);
    }
  const std::vector<const SweepRow*> front = front_of(report, x, y);
  PlotLayout layout;
  const double legend_top = layout.height;
  layout.height += kLegendLine * static_cast<double>(std::min(front.size(), kMostLabels));
  SvgPlot plot(layout, spec.name);
  if (xs.empty()) {
    plot.text(layout.left, layout.top + 40, "no point could be evaluated");
    return std::move(plot).take();
  }
  const View view{
      spec, report, layout, x, y, scale_of(xs, layout.left, layout.right), scale_of(ys, layout.bottom, layout.top)};
  plot.x_grid(view.sx);
  plot.y_grid(view.sy);
  const auto label = [](std::size_t i) {
    return fmt::format("{} [{}]", sweep_metrics()[i].name, sweep_metrics()[i].unit);
  };
  plot.axis_names(label(x), label(y));
  std::vector<std::pair<double, double>> line;
  for (const SweepRow* row : front) line.emplace_back(view.at_x(*row), view.at_y(*row));
  if (xs.size() <= kMostCircles) {
    plot.polyline(line, kFront);
    draw_points(plot, view);
  } else {
    draw_density(plot, view);
    plot.polyline(line, kFront);
    for (std::size_t i = 0; i < std::min(line.size(), kMostCircles); ++i)
      plot.circle(line[i].first, line[i].second, 3, kFront);
  }
  draw_legend(plot, view, front, legend_top);
  return std::move(plot).take();
}

}  // namespace dllm::npu
