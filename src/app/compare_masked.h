#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "app/cli/flags.h"
#include "app/cli/masked_predictions.h"
#include "eval/text_table.h"

namespace dllm::app {

/// The flags of `dllm compare --masked N`, which compares these predictions instead of answers.
class MaskedComparison {
 public:
  void add(Flags& flags);
  bool wanted() const { return options_.canvases > 0; }
  const MaskedOptions& options() const { return options_; }

  static TextTable table(const std::vector<MaskedContender>& contenders);
  static nlohmann::ordered_json json(const std::vector<MaskedContender>& contenders);

 private:
  MaskedOptions options_;
};

}  // namespace dllm::app
