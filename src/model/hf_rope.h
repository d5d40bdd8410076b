#pragma once

#include <optional>
#include <string_view>

#include "dllm/error.h"
#include "format/metadata.h"
#include "model/hf_config.h"

namespace dllm {

/// YaRN as transformers writes it down.
struct HfYarn {
  double factor = 1, original_context = 0, beta_fast = 32, beta_slow = 1;
  double attention_factor = 1;  ///< of cos and sin
};

/// `rope_theta`, `rope_scaling` and `rope_parameters` of a config.json.
struct HfRope {
  double theta = 10000;
  std::optional<HfYarn> yarn;
  std::optional<double> linear;             ///< positions are divided by it
  double query_beta = 0, query_length = 0;  ///< llama_4_scaling_beta; 0: none
  std::optional<double> rotated_share;      ///< `partial_rotary_factor` of the object
};

/// Errors: kUnsupported, for scalings other than linear and YaRN and for parameters that this build does not know.
Expected<HfRope> rope_from_hf(const HfConfig& config, double theta = 10000);

/// The keys that describe_rope() reads, in llama.cpp's names.
void set_rope_metadata(std::string_view architecture, const HfRope& rope, Metadata& meta);

}  // namespace dllm
