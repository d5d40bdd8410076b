#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/flags.h"
#include "numerics/tensor_type.h"
#include "quant/convert.h"

/// What the verbs that write models share: the values of their flags and the forms of their report.
namespace dllm::app {

std::vector<std::string> recipe_names();

/// A tensor type by name, e.g. for --output-tensor-type.
Apply into_type(std::optional<TensorType>& target);

nlohmann::ordered_json report_json(const WriteReport& report, const std::string& path, const std::string& type);
std::string report_text(const WriteReport& report, const std::string& path);

/// One warning per pair of types: rows of one tensor may fit other blocks than those of the next.
std::string fallback_lines(const std::vector<Fallback>& fallbacks);

}  // namespace dllm::app
