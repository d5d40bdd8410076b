#pragma once

#include <optional>
#include <string>

#include "experiment/lab.h"

namespace dllm::app {

/// What all figures of whole answers have in common, in words.
std::string answer_setting(const Lab& lab);

/// The mean time of answers of `tokens`; nothing if a mapping fails. `shape`: empty: that of the inputs. Errors: those
/// of Lab::passes() and Lab::time().
Expected<std::optional<npu::StepTime>> mode_time(Lab& lab, const npu::Device& device, const AnswerMode& mode,
                                                 std::int32_t tokens, const std::string& shape = "");

/// The mean time of as many tokens one by one.
Expected<npu::StepTime> autoregressive_time(Lab& lab, const npu::Device& device, std::int32_t tokens,
                                            npu::StepProcessor processor);

}  // namespace dllm::app
