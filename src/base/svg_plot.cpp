#include "base/svg_plot.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

namespace dllm {
namespace {

constexpr std::string_view kGrid = "#e0e0e0";

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace

double PlotScale::operator()(double value) const {
  const double share = log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  return from + share * (to - from);
}

std::vector<double> PlotScale::ticks() const {
  std::vector<double> result;
  if (log) {
    for (double power = std::pow(10, std::floor(std::log10(low))); power <= high; power *= 10)
      for (const double digit : {1.0, 2.0, 5.0})
        if (digit * power >= low && digit * power <= high) result.push_back(digit * power);
    return result;
  }
  const double step = tick_step(high - low);
  const auto first = static_cast<std::int64_t>(std::ceil(low / step));
  for (std::int64_t i = first; static_cast<double>(i) * step <= high; ++i)
    result.push_back(static_cast<double>(i) * step);
  return result;
}

double tick_step(double span) {
  const double raw = span / 5, power = std::pow(10, std::floor(std::log10(raw)));
  return raw / power <= 2 ? 2 * power : raw / power <= 5 ? 5 * power : 10 * power;
}

SvgPlot::SvgPlot(const PlotLayout& layout, std::string_view title) : layout_(layout) {
  svg_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      layout.width, layout.height);
  text(layout.left, 24, title, "#333", 15);
}

void SvgPlot::x_grid_line(double x, std::string_view label) {
  line(x, layout_.top, x, layout_.bottom, kGrid);
  if (!label.empty()) text(x, layout_.bottom + 18, label, "#333", 12, Anchor::kMiddle);
}

void SvgPlot::x_grid(const PlotScale& scale) {
  for (const double v : scale.ticks()) x_grid_line(scale(v), fmt::format("{:.4g}", v));
}

void SvgPlot::y_grid(const PlotScale& scale) {
  for (const double v : scale.ticks()) {
    line(layout_.left, scale(v), layout_.right, scale(v), kGrid);
    text(layout_.left - 8, scale(v) + 4, fmt::format("{:.4g}", v), "#333", 12, Anchor::kEnd);
  }
}

void SvgPlot::axis_names(std::string_view x, std::string_view y) {
  text((layout_.left + layout_.right) / 2, layout_.bottom + 44, x, "#333", 12, Anchor::kMiddle);
  svg_ += fmt::format("<text transform=\"translate(18 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                      (layout_.top + layout_.bottom) / 2, escaped(y));
}

void SvgPlot::text(double x, double y, std::string_view text, std::string_view colour, double size, Anchor anchor) {
  constexpr std::string_view kAnchors[] = {"start", "middle", "end"};
  svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:g}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n",
                      x, y, size, kAnchors[static_cast<std::size_t>(anchor)], colour, escaped(text));
}

void SvgPlot::line(double x0, double y0, double x1, double y1, std::string_view colour, double width) {
  svg_ += fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"{:g}\"/>\n", x0, y0,
      x1, y1, colour, width);
}

void SvgPlot::polyline(const std::vector<std::pair<double, double>>& points, std::string_view colour, bool dashed) {
  std::string list;
  for (const auto& [x, y] : points) list += fmt::format("{}{:.1f},{:.1f}", list.empty() ? "" : " ", x, y);
  svg_ += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"{}/>\n", list, colour,
                      dashed ? " stroke-dasharray=\"5 7\"" : "");
}

void SvgPlot::area(std::string_view d, std::string_view colour, double opacity) {
  svg_ += fmt::format("<path d=\"{}\" fill=\"{}\" fill-opacity=\"{:.2f}\"/>\n", d, colour, opacity);
}

void SvgPlot::circle(double x, double y, double radius, std::string_view colour, std::string_view tip) {
  svg_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:g}\" fill=\"{}\" fill-opacity=\"0.8\"", x, y, radius,
                      colour);
  svg_ += tip.empty() ? "/>\n" : fmt::format("><title>{}</title></circle>\n", escaped(tip));
}

std::string SvgPlot::take() && { return std::move(svg_) + "</svg>\n"; }

}  // namespace dllm
