#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/cli/flags.h"
#include "app/cli/terminal.h"
#include "dllm/model.h"
#include "eval/divergence.h"
#include "eval/eval_set.h"
#include "eval/text_table.h"

namespace dllm::app {

/// A configuration whose predictions of masks are compared with the first one's.
struct MaskedContender {
  std::string name;
  const LanguageModel* model = nullptr;
  Divergence divergence{};
};

/// `dllm compare --masked N`: instead of answers, the predictions of masked positions in N canvases per item, which are
/// the answers of the items with random masks. One pass per canvas and configuration.
class MaskedComparison {
 public:
  void add(Flags& flags);
  bool wanted() const { return canvases_ > 0; }

  /// False: interrupted. Errors: kUsage (models with different tokens, without masks).
  Expected<bool> measure(const EvalSet& set, std::vector<MaskedContender>& contenders, const GenerateOptions& options,
                         ProgressLine& progress, const std::stop_token& stop) const;

  static TextTable table(const std::vector<MaskedContender>& contenders);
  static nlohmann::ordered_json json(const std::vector<MaskedContender>& contenders);

 private:
  std::int32_t canvases_ = 0;
  std::string masks_ = "decoding";
  std::uint64_t seed_ = 1;
};

}  // namespace dllm::app
