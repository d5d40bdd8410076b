#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/cli/flags.h"
#include "dllm/error.h"
#include "eval/eval_set.h"
#include "model/model.h"
#include "quant/calibrated.h"

namespace dllm::app {

/// How a model's texts become tokens.
struct TextEncoder {
  using Ids = std::vector<TokenId>;
  std::function<Expected<Ids>(const std::string& prompt)> prompt;  ///< through the chat template, if there is one
  std::function<Expected<Ids>(const std::string& answer)> answer;
  std::optional<TokenId> end, pad;  ///< that ends an answer, and what follows it
  std::int32_t block = 32;          ///< answers are filled up to a multiple
};

/// Prompts with their answers (as shown in examples).
Expected<std::vector<CalibrationText>> encode_items(const EvalSet& set, const TextEncoder& encoder);

/// The flags of `dllm quantize` that choose how matrices are rounded.
class CalibrationFlags {
 public:
  void add(Flags& flags);
  /// Options for write_quantized(). Errors: kUsage (a calibration that the method does not need).
  Expected<CalibrationOptions> options() const;

 private:
  Expected<std::vector<CalibrationText>> texts(const Model& model, const TextEncoder& encoder) const;
  Expected<std::vector<CalibrationCanvas>> canvases(const Model& model) const;

  std::string method_ = "rtn", path_, masks_ = "random";
  std::int32_t limit_ = 128, copies_ = 1;
  std::uint64_t seed_ = 0;
  double damping_ = 0.01;
};

/// By name: random, decoding, none.
CalibrationMasks masks_named(std::string_view name);

}  // namespace dllm::app
