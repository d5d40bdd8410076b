#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dllm/error.h"

namespace dllm::app {

/// The result of an experiment: a table, a plot, what it was made with, and what the paper says.
struct Figure {
  std::string name{}, title{};
  std::string setting{};  ///< how it was made
  std::string claim{};    ///< the paper's
  std::string verdict{};  ///< reproduced, differs because, cannot be
  std::vector<std::string> columns{};
  std::vector<std::vector<nlohmann::ordered_json>> rows{};  ///< cells: text, numbers, null (no value)
  struct Series {
    std::string name;
    std::vector<std::pair<double, double>> points;
  };
  std::vector<Series> series{};
  std::string x_name{}, y_name{};
  std::vector<std::string> x_labels{};  ///< of x = 0, 1, ...; empty: x is a number
  bool log_y = false;
  double y_low = 0;   ///< where a linear axis begins
  std::string key{};  ///< of what it was made of (figure_key())
};

std::string figure_csv(const Figure& figure);
nlohmann::ordered_json figure_json(const Figure& figure);
/// The inverse, without series and labels. nullopt: not the JSON of a figure.
std::optional<Figure> figure_from_json(const nlohmann::ordered_json& json);
/// Lines with their points, and a legend. Axes begin at 0 (that of y at y_low), a logarithmic one at the power of ten
/// below the least value.
std::string figure_svg(const Figure& figure);
/// A page: setting, plot, table, claim and verdict.
std::string figure_page(const Figure& figure);

/// Writes NAME.csv, NAME.svg, NAME.md and, last, NAME.json into a folder: where that exists, the others do. Errors:
/// kIo.
Expected<void> write_figure(const Figure& figure, const std::string& folder, const std::string& command);

}  // namespace dllm::app
