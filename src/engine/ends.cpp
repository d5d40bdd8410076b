#include "engine/ends.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/try.h"
#include "engine/logit_bias.h"

namespace dllm {

Expected<void> never_end(const LanguageModel& model, GenerateOptions& options) {
  const SpecialTokens special = model.special_tokens();
  if (special.eos) options.suppress_eos = true;
  if (!special.eot || special.eot == special.eos) return {};
  const std::string before = options.logit_bias.value_or("");
  DLLM_TRY(const auto biased, parse_logit_bias(before, model.vocab_size()));
  if (std::ranges::count(biased, *special.eot, &LogitAdjustments::Token::token) > 0) return {};
  return options.set("logit_bias", fmt::format("{}{}{}-inf", before, before.empty() ? "" : ",", *special.eot));
}

void fill_gaps(const LanguageModel& model, GenerateOptions& options) {
  if (options.suppress_eos) return;
  GenerateOptions filled = options;
  if (never_end(model, filled) && model.resolve(filled)) options = std::move(filled);
}

std::vector<std::size_t> empty_slots(const Generation& answer) {
  std::vector<std::size_t> empty;
  for (std::size_t i = 0; i < answer.slots.size(); ++i)
    if (answer.slots[i].empty()) empty.push_back(i);
  return empty;
}

}  // namespace dllm
