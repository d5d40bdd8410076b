#include "decode/loop/denoise_pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace dllm {

std::int32_t DenoisePass::score_of(Position position) const {
  const auto at = std::lower_bound(wanted.begin(), wanted.end(), position);
  assert(at != wanted.end() && *at == position);
  return score_of_wanted[static_cast<std::size_t>(at - wanted.begin())];
}

std::span<const TopToken> top_of(const Scores& scores, std::size_t row) {
  if (scores.rows.empty()) return {};
  const std::size_t count = scores.top.size() / scores.rows.size();
  return std::span(scores.top).subspan(row * count, count);
}

Error not_a_number(Position position, std::int64_t pass) {
  return {ErrorCode::kInvalidFile, fmt::format("the model's prediction for position {} is not a number", position),
          fmt::format("pass {}", pass), "the weights are damaged, or were quantized from damaged ones"};
}

}  // namespace dllm
