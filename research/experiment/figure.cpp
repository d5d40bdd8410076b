#include "experiment/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "app/cli/report.h"
#include "base/output_file.h"
#include "base/svg_plot.h"
#include "base/try.h"

namespace dllm::app {
namespace {

constexpr std::array<const char*, 10> kColours = {"#4878a8", "#c04020", "#3f8f4f", "#8a5aa8", "#b08820",
                                                  "#208f9f", "#777777", "#a04878", "#203050", "#e89a70"};

std::string cell_text(const nlohmann::ordered_json& cell) {
  if (cell.is_null()) return "–";
  if (cell.is_string()) return cell.get<std::string>();
  if (cell.is_number_integer()) return fmt::format("{}", cell.get<std::int64_t>());
  const double value = cell.get<double>();
  return fmt::format("{:.{}f}", value,
                     std::abs(value) >= 1000  ? 0
                     : std::abs(value) >= 100 ? 1
                     : std::abs(value) >= 1   ? 2
                                              : 3);
}

std::string csv_text(const nlohmann::ordered_json& cell) {
  if (cell.is_null()) return "";
  const std::string text = cell.is_string() ? cell.get<std::string>() : cell.dump();
  return text.find(',') == std::string::npos ? text : '"' + text + '"';
}

/// Lines of at most 120 columns.
std::string wrapped(const std::string& text) {
  std::istringstream words(text);
  std::string word, line, result;
  while (words >> word) {
    if (!line.empty() && line.size() + 1 + word.size() > 120) {
      result += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return result + line + "\n";
}

std::string table_text(const Figure& figure) {
  std::string text = "|", rule = "|";
  for (const std::string& column : figure.columns) {
    text += " " + column + " |";
    rule += "---|";
  }
  text += "\n" + rule + "\n";
  for (const auto& row : figure.rows) {
    text += "|";
    for (const auto& cell : row) text += " " + cell_text(cell) + " |";
    text += "\n";
  }
  return text;
}

}  // namespace

std::string figure_csv(const Figure& figure) {
  std::string text;
  for (std::size_t i = 0; i < figure.columns.size(); ++i) text += (i > 0 ? "," : "") + csv_text(figure.columns[i]);
  for (const auto& row : figure.rows) {
    text += "\n";
    for (std::size_t i = 0; i < row.size(); ++i) text += (i > 0 ? "," : "") + csv_text(row[i]);
  }
  return text + "\n";
}

nlohmann::ordered_json figure_json(const Figure& figure) {
  nlohmann::ordered_json series = nlohmann::ordered_json::array();
  for (const Figure::Series& one : figure.series) series.push_back({{"name", one.name}, {"points", one.points}});
  return {{"name", figure.name},         {"title", figure.title},     {"setting", figure.setting},
          {"claim", figure.claim},       {"verdict", figure.verdict}, {"columns", figure.columns},
          {"rows", figure.rows},         {"x", figure.x_name},        {"y", figure.y_name},
          {"series", std::move(series)}, {"key", figure.key}};
}

std::optional<Figure> figure_from_json(const nlohmann::ordered_json& json) {
  if (!json.is_object()) return std::nullopt;
  Figure figure;
  const std::pair<const char*, std::string*> texts[] = {
      {"name", &figure.name},       {"title", &figure.title}, {"setting", &figure.setting}, {"claim", &figure.claim},
      {"verdict", &figure.verdict}, {"x", &figure.x_name},    {"y", &figure.y_name},        {"key", &figure.key}};
  for (const auto& [name, target] : texts) {
    if (!json.contains(name) || !json[name].is_string()) return std::nullopt;
    *target = json[name].get<std::string>();
  }
  for (const char* name : {"columns", "rows", "series"})
    if (!json.contains(name) || !json[name].is_array()) return std::nullopt;
  for (const auto& column : json["columns"]) {
    if (!column.is_string()) return std::nullopt;
    figure.columns.push_back(column.get<std::string>());
  }
  for (const auto& row : json["rows"]) {
    if (!row.is_array() || row.size() != figure.columns.size()) return std::nullopt;
    figure.rows.emplace_back(row.begin(), row.end());
  }
  return figure;
}

std::string figure_svg(const Figure& figure) {
  PlotLayout layout{.width = 980};
  SvgPlot plot(layout, figure.title);
  double x = 0, y = 0, least = 1e300;
  for (const Figure::Series& one : figure.series)
    for (const auto& [px, py] : one.points) {
      x = std::max(x, px);
      y = std::max(y, py);
      least = std::min(least, py);
    }
  const bool named = !figure.x_labels.empty();
  const PlotScale sx{named ? -0.5 : 0, std::max(named ? x + 0.5 : x * 1.02, 1e-9), layout.left, layout.right};
  const PlotScale sy{figure.log_y ? std::pow(10, std::floor(std::log10(least))) : figure.y_low,
                     std::max(figure.y_low + (y - figure.y_low) * 1.05, 1e-9), layout.bottom, layout.top, figure.log_y};
  if (!named) plot.x_grid(sx);
  for (std::size_t i = 0; i < figure.x_labels.size(); ++i)
    plot.x_grid_line(sx(static_cast<double>(i)), figure.x_labels[i]);
  plot.y_grid(sy);
  plot.axis_names(figure.x_name, figure.y_name);
  double legend = layout.top + 10;
  for (std::size_t i = 0; i < figure.series.size(); ++i) {
    const Figure::Series& one = figure.series[i];
    const char* colour = kColours[i % kColours.size()];
    std::vector<std::pair<double, double>> points;
    for (const auto& [px, py] : one.points) {
      points.emplace_back(sx(px), sy(py));
      plot.circle(sx(px), sy(py), 3, colour, fmt::format("{}: {:.4g}, {:.4g}", one.name, px, py));
    }
    plot.polyline(points, colour);
    plot.line(layout.right + 10, legend - 4, layout.right + 30, legend - 4, colour, 2);
    plot.text(layout.right + 36, legend, one.name);
    legend += 16;
  }
  return std::move(plot).take();
}

std::string figure_page(const Figure& figure) {
  return fmt::format("# {}\n\n{}\n![{}]({}.svg)\n\n{}\n{}\n{}", figure.title, wrapped(figure.setting), figure.title,
                     figure.name, table_text(figure), wrapped("*The paper:* " + figure.claim),
                     wrapped("*Here:* " + figure.verdict));
}

Expected<void> write_figure(const Figure& figure, const std::string& folder, const std::string& command) {
  nlohmann::ordered_json json = figure_json(figure);
  json["command"] = command;
  const std::string base = folder + "/" + figure.name;
  DLLM_CHECK_OK(write_file(base + ".csv", figure_csv(figure)));
  DLLM_CHECK_OK(write_file(base + ".svg", figure_svg(figure)));
  DLLM_CHECK_OK(write_file(base + ".md", figure_page(figure)));
  return write_file(base + ".json", dump(json) + "\n");
}

}  // namespace dllm::app
