// A scatter plot in plain SVG: two axes, points, the Pareto front as a line.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "npu/sweep/run.h"

namespace dllm::npu {
namespace {

constexpr double kWidth = 760, kHeight = 480, kLeft = 90, kRight = 20, kTop = 40, kBottom = 60;

struct Scale {
  double low = 0, high = 1, from = 0, to = 1;
  double operator()(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

/// 1, 2 or 5 times a power of ten, so that about five ticks fit.
double tick_step(double span) {
  const double raw = span / 5, power = std::pow(10, std::floor(std::log10(raw)));
  return raw / power < 2 ? 2 * power : raw / power < 5 ? 5 * power : 10 * power;
}

Scale scale_of(const std::vector<double>& values, double from, double to) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double span = *high > *low ? *high - *low : std::max(1.0, std::abs(*high));
  return {std::max(*low - 0.05 * span, *low >= 0 ? 0.0 : -1e300), *high + 0.05 * span, from, to};
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text)
    result += c == '<'   ? std::string("&lt;")
              : c == '>' ? std::string("&gt;")
              : c == '&' ? std::string("&amp;")
                         : std::string(1, c);
  return result;
}

std::string axis_ticks(const Scale& scale, bool horizontal) {
  std::string text;
  const double step = tick_step(scale.high - scale.low);
  for (double v = std::ceil(scale.low / step) * step; v <= scale.high; v += step) {
    const double at = scale(v);
    text += horizontal ? fmt::format(
                             "<line x1='{0:.1f}' y1='{1}' x2='{0:.1f}' y2='{2}' class='grid'/>"
                             "<text x='{0:.1f}' y='{3}' text-anchor='middle'>{4:.4g}</text>\n",
                             at, kTop, kHeight - kBottom, kHeight - kBottom + 18, v)
                       : fmt::format(
                             "<line x1='{1}' y1='{0:.1f}' x2='{2}' y2='{0:.1f}' class='grid'/>"
                             "<text x='{3}' y='{0:.1f}' dy='4' text-anchor='end'>{4:.4g}</text>\n",
                             at, kLeft, kWidth - kRight, kLeft - 8, v);
  }
  return text;
}

}  // namespace

std::string sweep_svg(const SweepSpec& spec, const SweepReport& report) {
  const std::size_t x = metric_index(spec.plot_x), y = metric_index(spec.plot_y);
  std::vector<const SweepRow*> rows;
  std::vector<double> xs, ys;
  for (const SweepRow& row : report.rows)
    if (row.result.error.empty()) {
      rows.push_back(&row);
      xs.push_back(row.result.metrics[x]);
      ys.push_back(row.result.metrics[y]);
    }
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' font-family='sans-serif' font-size='12'>\n"
      "<style>.grid{{stroke:#ddd}}.p{{fill:#4878a8}}.over{{fill:#bbb}}.front{{fill:none;stroke:#c04020;stroke-width:1."
      "5}}"
      ".best{{fill:#c04020}}</style>\n<rect width='{0}' height='{1}' fill='white'/>\n"
      "<text x='{2}' y='22' font-size='15'>{3}</text>\n",
      kWidth, kHeight, kLeft, escaped(spec.name));
  if (rows.empty()) return svg + "<text x='90' y='80'>no point could be evaluated</text>\n</svg>\n";
  const Scale sx = scale_of(xs, kLeft, kWidth - kRight), sy = scale_of(ys, kHeight - kBottom, kTop);
  svg += axis_ticks(sx, true) + axis_ticks(sy, false);
  const auto label = [](std::size_t i) {
    return fmt::format("{} [{}]", sweep_metrics()[i].name, sweep_metrics()[i].unit);
  };
  svg += fmt::format("<text x='{}' y='{}' text-anchor='middle'>{}</text>\n", (kLeft + kWidth - kRight) / 2,
                     kHeight - 15, label(x));
  svg += fmt::format("<text transform='translate(18 {}) rotate(-90)' text-anchor='middle'>{}</text>\n",
                     (kTop + kHeight - kBottom) / 2, label(y));
  std::vector<std::pair<double, double>> front;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string tip;
    for (std::size_t a = 0; a < spec.axes.size(); ++a)
      tip += fmt::format("{}{} = {}", a == 0 ? "" : "\n", spec.axes[a].key, rows[i]->values[a]);
    svg += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='{}' class='{}'><title>{}</title></circle>\n", sx(xs[i]),
                       sy(ys[i]), rows[i]->pareto ? 5 : 3,
                       rows[i]->pareto               ? "best"
                       : rows[i]->over_limit.empty() ? "p"
                                                     : "over",
                       escaped(tip));
    if (rows[i]->pareto) front.emplace_back(sx(xs[i]), sy(ys[i]));
  }
  std::sort(front.begin(), front.end());
  svg += "<polyline class='front' points='";
  for (const auto& [px, py] : front) svg += fmt::format("{:.1f},{:.1f} ", px, py);
  return svg + "'/>\n</svg>\n";
}

}  // namespace dllm::npu
