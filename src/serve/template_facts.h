#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "dllm/model.h"
#include "text/thoughts.h"

namespace dllm::serve {

/// What a chat template says about itself.
struct TemplateFacts {
  ThoughtFormat thoughts{};
  std::vector<std::int32_t> markers{};          ///< ids of texts around thoughts and calls that are tokens of their own
  std::set<std::string, std::less<>> inputs{};  ///< variables that it reads
  std::vector<std::string> thought_fields{};    ///< of a message: what it reads thoughts from
  std::vector<std::string> thought_switches{};  ///< variables that switch thoughts on and off
};

TemplateFacts template_facts(const LanguageModel& model, bool tools);

}  // namespace dllm::serve
