#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dllm {

/// Maps values to pixels, linearly or logarithmically.
struct PlotScale {
  double low = 0, high = 1;  ///< values; low < high, and low > 0 if logarithmic
  double from = 0, to = 1;   ///< pixels
  bool log = false;

  double operator()(double value) const;
  /// Round values within [low, high]: about five, or 1, 2 and 5 times each power of ten if logarithmic.
  std::vector<double> ticks() const;
};

/// 2, 5 or 10 times a power of ten, so that three to five steps make up `span` > 0.
double tick_step(double span);

/// A picture with a plot area, in pixels. `width` and `height` are the whole picture's; a legend may use the right.
struct PlotLayout {
  double width = 760, height = 480;
  double left = 90, right = 740, top = 40, bottom = 420;  ///< edges of the plot area
};

/// A diagram as SVG text: plain shapes over one pair of axes, readable without scripts or style sheets. Texts are
/// escaped; coordinates are pixels from the upper left.
class SvgPlot {
 public:
  SvgPlot(const PlotLayout& layout, std::string_view title);

  /// Grid lines with numbers, and the axes' names.
  void x_grid(const PlotScale& scale);
  void y_grid(const PlotScale& scale);
  /// One line of the x grid; without a number if the label is empty.
  void x_grid_line(double x, std::string_view label);
  void axis_names(std::string_view x, std::string_view y);

  enum class Anchor { kStart, kMiddle, kEnd };
  void text(double x, double y, std::string_view text, std::string_view colour = "#333", double size = 12,
            Anchor anchor = Anchor::kStart);
  void line(double x0, double y0, double x1, double y1, std::string_view colour, double width = 1);
  void polyline(const std::vector<std::pair<double, double>>& points, std::string_view colour, bool dashed = false);
  /// A filled path without outline, `d` as in SVG.
  void area(std::string_view d, std::string_view colour, double opacity);
  /// `tip` appears when the pointer is over the point; empty: none.
  void circle(double x, double y, double radius, std::string_view colour, std::string_view tip = {});

  /// The whole picture.
  std::string take() &&;

 private:
  PlotLayout layout_;
  std::string svg_;
};

}  // namespace dllm
