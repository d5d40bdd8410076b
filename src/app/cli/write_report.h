#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/cli/flags.h"
#include "dllm/error.h"
#include "numerics/tensor_type.h"
#include "quant/convert.h"

/// Common to the verbs that write models: their flags' values and the formats of their report.
namespace dllm::app {

std::vector<std::string> recipe_names();

/// --pure and the types of head and embedding.
void add_recipe_flags(Flags& flags, RecipeOptions& recipe);

/// --force, --threads and --report.
class OutputFlags {
 public:
  void add(Flags& flags);
  /// Errors: of check_output(), without --force also if `path` exists.
  Expected<void> check(const std::string& path) const;
  bool replace() const { return force_; }
  int threads() const;
  bool json() const { return report_ == "json"; }

 private:
  bool force_ = false;
  std::int32_t threads_ = 0;
  std::string report_;
};

nlohmann::ordered_json report_json(const WriteReport& report, const std::string& path, const std::string& type);
std::string report_text(const WriteReport& report, const std::string& path);

/// One warning per pair of types, because rows of different tensors may fit different blocks.
std::string fallback_lines(const std::vector<Fallback>& fallbacks);

}  // namespace dllm::app
