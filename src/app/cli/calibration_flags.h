#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
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

/// How matrices are rounded, and what a calibration sees.
struct CalibrationSetting {
  std::string method = "rtn";
  std::string path{};  ///< of items or a text; empty: no calibration
  std::string masks = "random";
  std::int32_t limit = 128, copies = 1;
  std::uint64_t seed = 0;
  double damping = 0.01;

  /// Makes the canvases of a model; `path` is not empty.
  std::function<Expected<std::vector<CalibrationCanvas>>(const Model&)> canvases() const;
  /// What they are made of.
  std::string description() const;
  /// For write_quantized(). Errors: kUsage (a calibration that the method does not need, or that it lacks).
  Expected<CalibrationOptions> options() const;
};

/// The flags of `dllm quantize` that choose how matrices are rounded.
class CalibrationFlags {
 public:
  void add(Flags& flags);
  /// Those that choose what a calibration sees. `readers`: what the help says after the kinds of files.
  void add_texts(Flags& flags, std::string_view readers);
  const CalibrationSetting& setting() const { return setting_; }
  Expected<CalibrationOptions> options() const { return setting_.options(); }

 private:
  CalibrationSetting setting_;
};

/// By name: random, decoding, none.
CalibrationMasks masks_named(std::string_view name);

}  // namespace dllm::app
