#include "eval/accuracy_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace dllm {
namespace {

constexpr double kWidth = 860, kHeight = 520, kLeft = 64, kRight = 24, kTop = 48, kBottom = 56;
constexpr double kLetter = 6.4, kLine = 13;  // of the labels' font, for placing them
constexpr std::size_t kNamed = 12;           // more points than this get numbers, and a legend beside the plot
constexpr double kLegend = 190;

struct AxisText {
  std::string_view name, title;
  bool more_is_better;
};
constexpr std::array<AxisText, 4> kAxes = {{{"tok/s", "answer tokens per second", true},
                                            {"ms", "milliseconds per answer", false},
                                            {"nfe", "forward passes per answer", false},
                                            {"rows", "rows forwarded per answer", false}}};

struct Point {
  std::string name;
  double x = 0, y = 0, low = 0, high = 0;  // x as the axis has it; accuracy and its interval in percent
};

/// Linear, or logarithmic where the values span more than a factor of eight.
struct Scale {
  double low = 0, high = 1, from = 0, to = 1;
  bool log = false;
  double operator()(double v) const {
    const double share = log ? std::log(v / low) / std::log(high / low) : (v - low) / (high - low);
    return from + share * (to - from);
  }
};

/// 1, 2 or 5 times a power of ten, so that about five fit into the span.
double tick_step(double span) {
  const double raw = span / 5, power = std::pow(10, std::floor(std::log10(raw)));
  return raw / power < 2 ? 2 * power : raw / power < 5 ? 5 * power : 10 * power;
}

std::vector<double> ticks(const Scale& scale) {
  std::vector<double> result;
  if (scale.log) {
    for (double power = std::pow(10, std::floor(std::log10(scale.low))); power <= scale.high; power *= 10)
      for (const double digit : {1.0, 2.0, 5.0})
        if (digit * power >= scale.low && digit * power <= scale.high) result.push_back(digit * power);
    return result;
  }
  const double step = tick_step(scale.high - scale.low);
  const auto first = static_cast<std::int64_t>(std::ceil(scale.low / step));
  for (std::int64_t i = first; static_cast<double>(i) * step <= scale.high; ++i)
    result.push_back(static_cast<double>(i) * step);
  return result;
}

Scale x_scale(const std::vector<Point>& points) {
  const auto [low, high] =
      std::minmax_element(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
  Scale scale{0, std::max(high->x, 1e-9) * 1.1, kLeft, kWidth - kRight};
  if (low->x > 0 && high->x > 8 * low->x) scale = {low->x / 1.25, high->x * 1.25, kLeft, kWidth - kRight, true};
  return scale;
}

Scale y_scale(const std::vector<Point>& points) {
  double low = 100, high = 0;
  for (const Point& p : points) low = std::min(low, p.low), high = std::max(high, p.high);
  const double margin = std::max(1.0, 0.08 * (high - low));
  return {std::max(0.0, low - margin), std::min(100.0, high + margin), kHeight - kBottom, kTop};
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

struct Box {
  double x0, y0, x1, y1;
  bool meets(const Box& o) const { return x0 < o.x1 && o.x0 < x1 && y0 < o.y1 && o.y0 < y1; }
  bool inside() const { return x0 >= kLeft && x1 <= kWidth - 4 && y0 >= kTop - 14 && y1 <= kHeight - kBottom; }
};

struct Label {
  double x, y;  // left end of the baseline
  bool far;     // away from its point: a thin line leads there
};

/// What stands beside a point: its name, or the numbers of all points that lie there.
struct Caption {
  std::string text;
  const Point* point;
};

std::vector<Caption> captions_of(const std::vector<Point>& points, const Scale& sx, const Scale& sy) {
  std::vector<Caption> captions;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Point& p = points[i];
    const auto near = [&](const Caption& c) {
      return std::hypot(sx(p.x) - sx(c.point->x), sy(p.y) - sy(c.point->y)) < 5;
    };
    const auto found = points.size() <= kNamed ? captions.end() : std::find_if(captions.begin(), captions.end(), near);
    if (found != captions.end())
      found->text += fmt::format(" {}", i + 1);
    else
      captions.push_back({points.size() <= kNamed ? p.name : fmt::format("{}", i + 1), &p});
  }
  return captions;
}

/// Places the captions one after another: the first of the candidate spots around a point that is free, nearest first.
std::vector<Label> place_labels(const std::vector<Caption>& captions, const std::vector<Point>& points, const Scale& sx,
                                const Scale& sy) {
  std::vector<Box> taken;
  for (const Point& p : points) taken.push_back({sx(p.x) - 5, sy(p.y) - 5, sx(p.x) + 5, sy(p.y) + 5});
  std::vector<Label> labels;
  for (const Caption& caption : captions) {
    const double x = sx(caption.point->x), y = sy(caption.point->y);
    const double width = kLetter * static_cast<double>(caption.text.size());
    Label chosen{x + 8, y + 4, false};
    bool found = false;
    for (double distance = 0; distance < 30 && !found; ++distance)
      for (const double up : {-1.0, 1.0}) {
        for (const bool right : {true, false}) {
          const double baseline = y + 4 + up * distance * 0.6 * kLine, left = right ? x + 8 : x - 8 - width;
          const Box box{left - 1, baseline - kLine + 3, left + width + 1, baseline + 3};
          if (found || !box.inside()) continue;
          if (std::any_of(taken.begin(), taken.end(), [&](const Box& b) { return b.meets(box); })) continue;
          chosen = {left, baseline, distance > 2};
          found = true;
          taken.push_back(box);
        }
      }
    labels.push_back(chosen);
  }
  return labels;
}

std::string legend(const std::vector<Point>& points) {
  std::string svg;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double y = kTop + kLine * static_cast<double>(i);
    svg += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"11\" text-anchor=\"end\" fill=\"#888\">{}</text>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"11\">{}</text>\n",
        kWidth + 16, y, i + 1, kWidth + 22, y, escaped(points[i].name));
  }
  return svg;
}

/// `width`, `height`: of the whole picture, the legend included.
std::string frame(const Scale& sx, const Scale& sy, const AxisText& axis, std::string_view title, double width,
                  double height) {
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\n<rect width=\"{0}\" height=\"{1}\" "
      "fill=\"white\"/>\n<text x=\"{2}\" y=\"24\" font-size=\"15\">{3}</text>\n",
      width, height, kLeft, escaped(title));
  for (const double v : ticks(sx))
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#e4e4e4\"/>"
        "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4:.4g}</text>\n",
        sx(v), kTop, kHeight - kBottom, kHeight - kBottom + 18, v);
  for (const double v : ticks(sy))
    svg += fmt::format(
        "<line x1=\"{1}\" y1=\"{0:.1f}\" x2=\"{2}\" y2=\"{0:.1f}\" stroke=\"#e4e4e4\"/>"
        "<text x=\"{3}\" y=\"{0:.1f}\" dy=\"4\" text-anchor=\"end\">{4:.4g}</text>\n",
        sy(v), kLeft, kWidth - kRight, kLeft - 8, v);
  svg += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}{}</text>\n"
      "<text transform=\"translate(16 {:.1f}) rotate(-90)\" text-anchor=\"middle\">correct answers, %</text>\n",
      (kLeft + kWidth - kRight) / 2, kHeight - 14, axis.title, sx.log ? " (logarithmic)" : "",
      (kTop + kHeight - kBottom) / 2);
  return svg;
}

/// The configurations that no other beats in accuracy and on the axis, by x.
std::vector<const Point*> front(const std::vector<Point>& points, bool more_is_better) {
  std::vector<const Point*> sorted;
  for (const Point& p : points) sorted.push_back(&p);
  std::sort(sorted.begin(), sorted.end(), [&](const Point* a, const Point* b) {
    if (a->x != b->x) return more_is_better ? a->x > b->x : a->x < b->x;
    return a->y > b->y;
  });
  std::vector<const Point*> result;
  for (const Point* p : sorted)
    if (result.empty() || p->y > result.back()->y) result.push_back(p);
  return result;
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
  const AxisText& text = kAxes[static_cast<std::size_t>(axis)];
  std::vector<Point> points;
  for (const ComparisonRow& row : rows) {
    const double x = axis == PlotAxis::kTokensPerSecond ? row.score.tokens_per_second()
                     : axis == PlotAxis::kMilliseconds  ? row.milliseconds()
                     : axis == PlotAxis::kPasses        ? row.score.mean_nfe()
                                                        : row.rows_forwarded();
    points.push_back({row.name, x, 100 * row.score.accuracy(), 100 * row.accuracy.low, 100 * row.accuracy.high});
  }
  const Scale sx = x_scale(points), sy = y_scale(points);
  const bool numbered = points.size() > kNamed;
  std::string svg = frame(sx, sy, text, title, numbered ? kWidth + kLegend : kWidth,
                          numbered ? std::max(kHeight, kTop + kLine * static_cast<double>(points.size())) : kHeight);
  const auto best = front(points, text.more_is_better);
  std::string path;
  for (const Point* p : best) path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", sx(p->x), sy(p->y));
  for (const Point& p : points)
    svg += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#c3cfdb\"/>\n",
                       sx(p.x), sy(p.low), sy(p.high));
  svg += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"#c04020\" stroke-width=\"1.5\"/>\n", path);
  const auto captions = captions_of(points, sx, sy);
  const auto labels = place_labels(captions, points, sx, sy);
  for (std::size_t i = 0; i < captions.size(); ++i) {
    const double x = sx(captions[i].point->x), y = sy(captions[i].point->y);
    const double end = labels[i].x + kLetter * static_cast<double>(captions[i].text.size());
    if (labels[i].far)
      svg += fmt::format(
          "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#999\" "
          "stroke-width=\"0.6\"/>\n",
          x, y, labels[i].x > x ? labels[i].x - 2 : end, labels[i].y - 4);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"11\">{}</text>\n", labels[i].x, labels[i].y,
                       escaped(captions[i].text));
  }
  for (const Point& p : points) {
    const bool on_front = std::find(best.begin(), best.end(), &p) != best.end();
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\" fill-opacity=\"0.8\"/>\n", sx(p.x),
                       sy(p.y), on_front ? "#c04020" : "#4878a8");
  }
  return svg + (numbered ? legend(points) : "") + "</svg>\n";
}

}  // namespace dllm
