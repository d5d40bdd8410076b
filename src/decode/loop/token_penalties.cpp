#include "decode/loop/token_penalties.h"

#include <algorithm>
#include <map>

#include "base/to_size.h"

namespace dllm {

LogitAdjustments adjustments(const PenaltyConfig& config, const Canvas& canvas, const DenoisePass& pass,
                             std::size_t scored) {
  LogitAdjustments result;
  if (!config.on()) return result;
  result.repetition = static_cast<float>(config.repetition);
  result.presence = static_cast<float>(config.presence);
  result.frequency = static_cast<float>(config.frequency);
  std::map<TokenId, LogitAdjustments::Token> tokens;
  for (const LogitAdjustments::Token& one : config.biased) tokens[one.token].bias = one.bias;
  if (config.penalizes()) {
    for (Position p = 0; p < canvas.size(); ++p) {
      if (canvas.masked(p) || std::ranges::count(config.uncounted, canvas.token(p)) > 0) continue;
      LogitAdjustments::Token& one = tokens[canvas.token(p)];
      p < canvas.answer_begin() ? void(one.in_prompt = true) : void(++one.in_answer);
    }
    result.shown.assign(scored, -1);
    for (std::size_t i = 0; i < pass.wanted.size(); ++i)
      if (const std::int32_t row = pass.score_of_wanted[i]; row >= 0 && !canvas.masked(pass.wanted[i]))
        result.shown[to_size(row)] = canvas.token(pass.wanted[i]);
    for (std::size_t i = 0; i < pass.shadowed.size(); ++i)
      result.shown[to_size(pass.score_of_shadow[i])] = canvas.token(pass.shadowed[i]);
  }
  for (auto& [id, one] : tokens) {
    one.token = id;
    result.tokens.push_back(one);
  }
  return result;
}

}  // namespace dllm
