#include "engine/logit_bias.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "base/parse_text.h"
#include "base/try.h"

namespace dllm {
namespace {

Error not_a_bias(std::string_view part) {
  return {ErrorCode::kUsage, fmt::format("'{}' is not a token id with a signed bias", part), "--logit-bias",
          "for example 15043+2.5 or 13-inf, separated by commas"};
}

Expected<LogitAdjustments::Token> parse_one(std::string_view part, std::int64_t vocab) {
  const std::size_t sign = part.find_first_of("+-");
  if (sign == std::string_view::npos || sign == 0) return not_a_bias(part);
  const auto id = parse_number<std::int64_t>(part.substr(0, sign));
  // from_chars reads no plus sign.
  const auto bias = parse_number<float>(part.substr(sign + (part[sign] == '+' ? 1 : 0)));
  const bool signed_twice = part.size() > sign + 1 && (part[sign + 1] == '+' || part[sign + 1] == '-');
  if (!id || !bias || signed_twice || std::isnan(*bias)) return not_a_bias(part);
  if (*id >= vocab)
    return Error{ErrorCode::kUsage, fmt::format("token id {} is outside the vocabulary of {}", *id, vocab),
                 "--logit-bias", "dllm tokenize shows the ids of a text"};
  if (std::isinf(*bias) && *bias > 0) return not_a_bias(part);
  LogitAdjustments::Token token;
  token.token = static_cast<TokenId>(*id);
  token.bias = *bias;
  return token;
}

}  // namespace

Expected<std::vector<LogitAdjustments::Token>> parse_logit_bias(std::string_view text, std::int64_t vocab) {
  std::vector<LogitAdjustments::Token> tokens;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    DLLM_TRY(const LogitAdjustments::Token token, parse_one(text.substr(0, comma), vocab));
    tokens.push_back(token);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) return not_a_bias(text);
  }
  std::ranges::sort(tokens, {}, &LogitAdjustments::Token::token);
  const auto twice = std::ranges::adjacent_find(tokens, {}, &LogitAdjustments::Token::token);
  if (twice != tokens.end())
    return Error{ErrorCode::kUsage, fmt::format("token id {} is given twice", twice->token), "--logit-bias",
                 "leave one out"};
  return tokens;
}

}  // namespace dllm
