#include "npu/sampling/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace dllm::npu {
namespace {

constexpr double kWidth = 640, kHeight = 400, kLeft = 80, kRight = 20, kTop = 40, kBottom = 60;
constexpr std::string_view kColours[] = {"#4878a8", "#c04020", "#508040", "#806090"};

/// 1, 2 or 5 times a power of ten, so that about five ticks fit.
double tick_step(double span) {
  const double raw = span / 5, power = std::pow(10, std::floor(std::log10(raw)));
  return raw / power < 2 ? 2 * power : raw / power < 5 ? 5 * power : 10 * power;
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

std::string thousands(double value) {
  return value >= 1024 && std::fmod(value, 1024) == 0 ? fmt::format("{:g}k", value / 1024) : fmt::format("{:g}", value);
}

}  // namespace

std::string line_plot(std::string_view title, std::string_view x_label, std::string_view y_label,
                      const std::vector<PlotLine>& lines, bool log_x) {
  std::set<double> xs;
  double top = 0;
  for (const PlotLine& line : lines)
    for (const auto& [x, y] : line.points) {
      xs.insert(x);
      top = std::max(top, y);
    }
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' font-family='sans-serif' font-size='12'>\n"
      "<style>.grid{{stroke:#ddd}}</style>\n<rect width='{0}' height='{1}' fill='white'/>\n"
      "<text x='{2}' y='22' font-size='15'>{3}</text>\n",
      kWidth, kHeight, kLeft, escaped(title));
  if (xs.empty() || !(top > 0)) return svg + "</svg>\n";
  const auto place = [log_x](double x) { return log_x ? std::log2(std::max(x, 1e-9)) : x; };
  const double low = log_x ? place(*xs.begin()) : 0, high = place(*xs.rbegin());
  const double span = high > low ? high - low : 1;
  const auto at_x = [&](double x) { return kLeft + (place(x) - low) / span * (kWidth - kRight - kLeft - 20) + 10; };
  const double step = tick_step(top);
  const double ceiling = std::ceil(top / step) * step;
  const auto at_y = [&](double y) { return kHeight - kBottom - y / ceiling * (kHeight - kBottom - kTop); };
  for (double y = 0; y <= ceiling * 1.0001; y += step)
    svg += fmt::format(
        "<line x1='{1}' y1='{0:.1f}' x2='{2}' y2='{0:.1f}' class='grid'/>"
        "<text x='{3}' y='{0:.1f}' dy='4' text-anchor='end'>{4:.4g}</text>\n",
        at_y(y), kLeft, kWidth - kRight, kLeft - 8, y);
  double last = -100;
  for (const double x : xs) {
    svg += fmt::format("<line x1='{0:.1f}' y1='{1}' x2='{0:.1f}' y2='{2}' class='grid'/>", at_x(x), kTop,
                       kHeight - kBottom);
    if (at_x(x) - last < 28) continue;  // labels must not overlap
    last = at_x(x);
    svg += fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>{}</text>\n", last, kHeight - kBottom + 18,
                       thousands(x));
  }
  svg += fmt::format("<text x='{}' y='{}' text-anchor='middle'>{}</text>\n", (kLeft + kWidth - kRight) / 2,
                     kHeight - 15, escaped(x_label));
  svg += fmt::format("<text transform='translate(18 {}) rotate(-90)' text-anchor='middle'>{}</text>\n",
                     (kTop + kHeight - kBottom) / 2, escaped(y_label));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view colour = kColours[i % std::size(kColours)];
    std::string path, marks;
    for (const auto& [x, y] : lines[i].points) {
      path += fmt::format("{:.1f},{:.1f} ", at_x(x), at_y(y));
      marks += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'><title>{}: {:g}, {:.4g}</title></circle>\n",
                           at_x(x), at_y(y), colour, escaped(lines[i].name), x, y);
    }
    svg += fmt::format("<polyline fill='none' stroke='{}' stroke-width='1.5' points='{}'/>\n{}", colour, path, marks);
    svg += fmt::format("<text x='{}' y='{}' fill='{}'>{}</text>\n", kLeft + 12, kTop + 16 + 16 * static_cast<double>(i),
                       colour, escaped(lines[i].name));
  }
  return svg + "</svg>\n";
}

}  // namespace dllm::npu
