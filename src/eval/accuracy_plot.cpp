#include "eval/accuracy_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/svg_plot.h"

namespace dllm {
namespace {

// One line per configuration, cheapest first: its name on the left, in the middle the paired difference to the first
// configuration with its 95 % interval, on the right its cost. A scatter plot of accuracy against cost was tried first,
// but most configurations are within each other's intervals: points and labels overlapped, and a frontier through them
// joined differences that are not significant.
constexpr double kLine = 17, kTop = 74, kBelow = 52;
constexpr double kLetter = 6.6;  // of the names' font
constexpr double kGap = 44, kDifference = 330, kCost = 230, kValue = 54;
constexpr double kMostPoints = 20;  // larger differences are drawn at the edge, with their value
constexpr std::string_view kBetter = "#2f7d4f", kWorse = "#c04020", kSame = "#8a97a5", kBar = "#b9cbe0";

struct AxisText {
  std::string_view name, title;
  bool more_is_better;
};
constexpr std::array<AxisText, 4> kAxes = {{{"tok/s", "answer tokens per second", true},
                                            {"ms", "milliseconds per answer", false},
                                            {"nfe", "forward passes per answer", false},
                                            {"rows", "rows forwarded per answer", false}}};

/// One configuration; differences in percentage points.
struct Entry {
  std::string name;
  double cost = 0, difference = 0, low = 0, high = 0;
  bool baseline = false;

  bool significant() const { return !baseline && (low > 0 || high < 0); }
  std::string_view colour() const { return !significant() ? kSame : difference > 0 ? kBetter : kWorse; }
};

std::vector<Entry> entries_of(const std::vector<ComparisonRow>& rows, PlotAxis axis) {
  std::vector<Entry> entries;
  for (const ComparisonRow& row : rows) {
    const double cost = axis == PlotAxis::kTokensPerSecond ? row.score.tokens_per_second()
                        : axis == PlotAxis::kMilliseconds  ? row.milliseconds()
                        : axis == PlotAxis::kPasses        ? row.score.mean_nfe()
                                                           : row.rows_forwarded();
    const PairedDifference& d = row.against_first;
    entries.push_back(
        {row.name, cost, 100 * d.difference, 100 * d.interval.low, 100 * d.interval.high, &row == &rows.front()});
  }
  const bool more_is_better = kAxes[static_cast<std::size_t>(axis)].more_is_better;
  std::stable_sort(entries.begin(), entries.end(),
                   [&](const Entry& a, const Entry& b) { return more_is_better ? a.cost > b.cost : a.cost < b.cost; });
  return entries;
}

/// Where the two panels are, in pixels.
struct Panels {
  double names, difference, cost, bottom;

  explicit Panels(const std::vector<Entry>& entries) {
    std::size_t longest = 8;
    for (const Entry& e : entries) longest = std::max(longest, e.name.size());
    names = 16 + kLetter * static_cast<double>(longest);
    difference = names + kGap;
    cost = difference + kDifference + kGap;
    bottom = kTop + kLine * static_cast<double>(entries.size());
  }
  double line(std::size_t i) const { return kTop + kLine * (static_cast<double>(i) + 0.5); }
};

PlotScale difference_scale(const std::vector<Entry>& entries, const Panels& at) {
  double low = -1, high = 1;
  for (const Entry& e : entries) low = std::min(low, e.low), high = std::max(high, e.high);
  return {std::max(low, -kMostPoints), std::min(high, kMostPoints), at.difference, at.difference + kDifference};
}

/// Logarithmic where the costs span more than a factor of ten.
PlotScale cost_scale(const std::vector<Entry>& entries, const Panels& at) {
  const auto less = [](const Entry& a, const Entry& b) { return a.cost < b.cost; };
  const auto [low, high] = std::minmax_element(entries.begin(), entries.end(), less);
  const double top = std::max(high->cost, 1e-9);
  if (low->cost > 0 && top > 10 * low->cost) return {low->cost / 2, top, at.cost, at.cost + kCost, true};
  return {0, top, at.cost, at.cost + kCost};
}

void draw_grid(SvgPlot& plot, const PlotScale& scale, std::string_view title, double bottom) {
  for (const double v : scale.ticks()) plot.x_grid_line(scale(v), fmt::format("{:.4g}", v));
  plot.text((scale.from + scale.to) / 2, bottom + 38, title, "#333", 12, SvgPlot::Anchor::kMiddle);
}

void draw_difference(SvgPlot& plot, const Entry& e, const PlotScale& scale, double y) {
  if (e.baseline) return plot.circle(scale(0), y, 4.5, "#333", e.name);
  const double low = std::clamp(e.low, scale.low, scale.high), high = std::clamp(e.high, scale.low, scale.high);
  const std::string tip = fmt::format("{}: {:+.1f} points, {:+.1f} to {:+.1f}", e.name, e.difference, e.low, e.high);
  if (e.high < scale.low || e.low > scale.high) {
    const bool left = e.high < scale.low;
    const double edge = left ? scale.from : scale.to, back = left ? 8 : -8;
    plot.area(fmt::format("M {:.1f} {:.1f} l {:.1f} -4 l 0 8 z", edge, y, back), e.colour(), 1);
    plot.text(edge + 1.6 * back, y + 4, fmt::format("{:+.1f}", e.difference), e.colour(), 11,
              left ? SvgPlot::Anchor::kStart : SvgPlot::Anchor::kEnd);
    return;
  }
  plot.line(scale(low), y, scale(high), y, e.colour(), e.significant() ? 2.2 : 1.4);
  plot.circle(scale(std::clamp(e.difference, scale.low, scale.high)), y, 3.5, e.colour(), tip);
}

void draw_cost(SvgPlot& plot, const Entry& e, const PlotScale& scale, double y) {
  const double end = scale(std::max(e.cost, scale.low)), half = 0.32 * kLine;
  plot.area(fmt::format("M {0:.1f} {2:.1f} H {1:.1f} V {3:.1f} H {0:.1f} z", scale.from, end, y - half, y + half), kBar,
            1);
  plot.text(end + 5, y + 4, e.cost < 100 ? fmt::format("{:.3g}", e.cost) : fmt::format("{:.0f}", e.cost), "#333", 11);
}

}  // namespace

std::vector<std::string> plot_axis_names() {
  std::vector<std::string> names;
  for (const AxisText& axis : kAxes) names.emplace_back(axis.name);
  return names;
}

PlotAxis plot_axis(std::string_view name) {
  std::size_t i = 0;
  while (i + 1 < kAxes.size() && kAxes[i].name != name) ++i;
  return static_cast<PlotAxis>(i);
}

std::string accuracy_plot(const std::vector<ComparisonRow>& rows, PlotAxis axis, std::string_view title) {
  const std::vector<Entry> entries = entries_of(rows, axis);
  const Panels at(entries);
  const PlotScale difference = difference_scale(entries, at), cost = cost_scale(entries, at);
  SvgPlot plot({.width = cost.to + kValue,
                .height = at.bottom + kBelow,
                .left = 16,
                .right = cost.to,
                .top = kTop,
                .bottom = at.bottom},
               title);
  plot.text(16, 44,
            fmt::format("Difference to '{}' ({:.1f} % correct) with its paired 95 % interval.", rows.front().name,
                        100 * rows.front().score.accuracy()),
            "#333", 12);
  plot.text(16, 60, "Coloured: the interval excludes zero.", kSame, 12);
  draw_grid(plot, difference, "percentage points", at.bottom);
  const std::string_view cost_title = kAxes[static_cast<std::size_t>(axis)].title;
  draw_grid(plot, cost, fmt::format("{}{}", cost_title, cost.log ? " (logarithmic)" : ""), at.bottom);
  plot.line(difference(0), kTop, difference(0), at.bottom, "#333");
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& e = entries[i];
    const bool plain = !e.significant() && !e.baseline;
    plot.text(at.names, at.line(i) + 4, e.name,
              plain        ? "#777"
              : e.baseline ? "#000"
                           : e.colour(),
              12, SvgPlot::Anchor::kEnd);
    draw_difference(plot, e, difference, at.line(i));
    draw_cost(plot, e, cost, at.line(i));
  }
  return std::move(plot).take();
}

}  // namespace dllm
