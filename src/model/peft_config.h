#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dllm/error.h"
#include "model/hf_config.h"

namespace dllm {

/// What an adapter_config.json says about the products B (A x): of PEFT's LoraConfig, the keys that this program reads.
class PeftConfig {
 public:
  /// Every key of the file must be known (LoraConfig of PEFT 0.21) and mean here what it means there; an unknown one
  /// that is not null is an error. Errors: kInvalidFile, kUnsupported, with the key's name.
  static Expected<PeftConfig> read(const HfConfig& config);

  /// lora_alpha / r, or lora_alpha / sqrt(r) (rsLoRA, arXiv 2312.03732), with alpha_pattern. `module`: the name of the
  /// adapted layer in the model; `rank`: of its A. Errors: kInvalidFile, the rank is not the one that r or rank_pattern
  /// gives.
  Expected<double> scale_of(std::string_view module, std::int64_t rank) const;

 private:
  using Pattern = std::vector<std::pair<std::string, double>>;
  static Expected<Pattern> read_pattern(const HfConfig& config, const char* key);
  /// The value of the key that names the module; patterns of several equal values count as one.
  static std::optional<double> find(const Pattern& pattern, std::string_view module);

  std::string file_;
  std::optional<std::int64_t> rank_;
  double alpha_ = 8;
  bool root_ = false;
  Pattern ranks_, alphas_;
};

}  // namespace dllm
