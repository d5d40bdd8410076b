#pragma once

#include <nlohmann/json.hpp>
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
};

std::string figure_csv(const Figure& figure);
nlohmann::ordered_json figure_json(const Figure& figure);
/// Lines with their points, and a legend. Axes begin at 0, a logarithmic one at the power of ten below the least value.
std::string figure_svg(const Figure& figure);
/// A page: setting, plot, table, claim and verdict.
std::string figure_page(const Figure& figure);

/// Writes NAME.csv, NAME.json, NAME.svg and NAME.md into a folder. Errors: kIo.
Expected<void> write_figure(const Figure& figure, const std::string& folder, const std::string& command);

}  // namespace dllm::app
