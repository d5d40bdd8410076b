#include "experiment/answer_times.h"

#include <fmt/format.h>

#include "base/try.h"

namespace dllm::app {

std::string answer_setting(const Lab& lab) {
  return fmt::format(
      "Steps of {} in the phones' formats. Which rows run in which pass comes from {}, which answers the first prompts "
      "of {} with exactly so many tokens in blocks of 32; means over the answers, prompt included. Prefix: one token "
      "per pass and a prefix cache, every row reaches the LM head. Speculative: threshold 0.9 and a lookahead at 4 "
      "masks, widened by the device's stairs, dual cache. Staged states: tokens are shown from 0.7 and final from 0.9. "
      "Sparse refresh: 8 visible tokens before the window are scored again per pass, on the host's processor while the "
      "device runs the pass, merged one step later; at the end up to two passes score those that are left. "
      "Autoregressive: the same shape, one row per pass.",
      lab.inputs().shape, lab.inputs().model, lab.inputs().items);
}

Expected<std::optional<npu::StepTime>> mode_time(Lab& lab, const npu::Device& device, const AnswerMode& mode,
                                                 std::int32_t tokens, const std::string& shape) {
  DLLM_TRY(const auto* const passes, lab.passes(mode.decoding, tokens));
  auto time = lab.time(device, *passes, mode.timing, shape);
  if (time) return std::optional(*time);
  if (time.error().code == ErrorCode::kResource) return std::optional<npu::StepTime>();
  return time.error();
}

Expected<npu::StepTime> autoregressive_time(Lab& lab, const npu::Device& device, std::int32_t tokens,
                                            npu::StepProcessor processor) {
  DLLM_TRY(const auto passes, lab.autoregression(tokens));
  return lab.time(device, passes, {.processor = processor});
}

}  // namespace dllm::app
