#pragma once

#include <optional>

#include "decode/method_entry.h"
#include "decode/option_row.h"

/// Options that several decoders share; their structs derive from these.
namespace dllm {

struct ThresholdOptions {
  double threshold = 0.9;
};
inline OptionRows<ThresholdOptions> threshold_rows() {
  return {option("threshold", &ThresholdOptions::threshold, 0, 2, "",
                 "confidence from which positions are committed together; above 1: only the best")};
}

struct StepsOptions {
  std::optional<std::int32_t> steps;

  std::int32_t steps_of(const MethodContext& context) const { return steps.value_or(context.length); }
};
inline OptionRows<StepsOptions> steps_rows() {
  return {option("steps", &StepsOptions::steps, 1, kMostPositions, "", "denoising steps over the whole answer")
              .flag("--diffusion-steps")
              .otherwise("one per token", [](const StepsOptions&, const ModelDesc&, const MethodContext& context) {
                return OptionValue(std::int64_t{context.length});
              })};
}

/// For decoders that judge tokens by a mask in their place: MethodEntry::only_for().
inline Expected<void> has_mask(const ModelDesc& desc) {
  if (desc.mask) return {};
  return Error{ErrorCode::kUsage, "the model has no mask to judge a token by", "", "give another --algorithm"};
}

}  // namespace dllm
