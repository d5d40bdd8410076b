#include "model/describe_rope.h"

#include <fmt/format.h>

#include <cmath>

#include "base/try.h"

namespace dllm {
namespace {

/// A number above 0, or the fallback.
Expected<float> positive(KeyReader& keys, std::string_view tail, double fallback) {
  DLLM_TRY(const auto found, keys.number(tail));
  const double value = found.value_or(fallback);
  if (value > 0 && std::isfinite(static_cast<float>(value))) return static_cast<float>(value);
  return Error{ErrorCode::kInvalidFile, fmt::format("{} is not a number above 0", value), keys.key(tail), ""};
}

/// YaRN's temperature of attention, 0.1 m ln(s) + 1 (arXiv 2309.00071, equation 15).
double yarn_temperature(double factor, double multiplier) {
  return factor <= 1 ? 1 : 0.1 * multiplier * std::log(factor) + 1;
}

/// As llama.cpp reads its keys: cos and sin are multiplied by the temperature of the factor, unless a multiplier for it
/// is named (DeepSeek's mscale_all_dim), and by `attn_factor`.
Expected<void> read_yarn(KeyReader& keys, ModelDesc& desc) {
  YarnScaling& yarn = desc.rope_yarn;
  DLLM_TRY(yarn.factor, positive(keys, "rope.scaling.factor", 0));
  if (yarn.factor < 1.f)
    return Error{ErrorCode::kInvalidFile, fmt::format("a factor of {} is below 1", yarn.factor),
                 keys.key("rope.scaling.factor"), ""};
  if (!(desc.rope_theta > 1.f))
    return Error{ErrorCode::kInvalidFile, fmt::format("YaRN needs a base above 1, not {}", desc.rope_theta),
                 keys.key("rope.freq_base"), ""};
  DLLM_TRY(yarn.original_context,
           positive(keys, "rope.scaling.original_context_length", static_cast<double>(desc.context_length)));
  DLLM_TRY(yarn.beta_fast, positive(keys, "rope.scaling.yarn_beta_fast", 32));
  DLLM_TRY(yarn.beta_slow, positive(keys, "rope.scaling.yarn_beta_slow", 1));
  DLLM_TRY(const float own, positive(keys, "rope.scaling.attn_factor", 1));
  DLLM_TRY(const float yarn_own, positive(keys, "rope.scaling.yarn_attn_factor", 1));
  DLLM_TRY(const float mixed, positive(keys, "rope.scaling.yarn_ext_factor", 1));
  if (mixed != 1.f)
    return Error{ErrorCode::kUnsupported, fmt::format("frequencies that are mixed by {} of YaRN's ramp", mixed),
                 keys.key("rope.scaling.yarn_ext_factor"), "1 is supported"};
  DLLM_TRY(const auto multiplier, keys.number("rope.scaling.yarn_log_multiplier"));
  const auto factor = static_cast<double>(yarn.factor);
  const double temperature = multiplier.value_or(0) != 0
                                 ? yarn_temperature(factor, 1) / yarn_temperature(factor, *multiplier)
                                 : yarn_temperature(factor, 1);
  yarn.magnitude = static_cast<float>(temperature * static_cast<double>(own) * static_cast<double>(yarn_own));
  if (yarn.magnitude > 0 && std::isfinite(yarn.magnitude)) return {};
  return Error{ErrorCode::kInvalidFile, fmt::format("cos and sin are scaled by {}", yarn.magnitude),
               keys.key("rope.scaling.attn_factor"), ""};
}

Expected<void> read_query_growth(KeyReader& keys, ModelDesc& desc) {
  DLLM_TRY(const auto beta, keys.number("attention.temperature_scale"));
  if (!beta || *beta == 0) return {};
  if (!(*beta > 0) || !std::isfinite(static_cast<float>(*beta)))
    return Error{ErrorCode::kInvalidFile, fmt::format("{} is not a valid scale", *beta),
                 keys.key("attention.temperature_scale"), ""};
  // Ministral 3's files name no length of their own: it is that of the context before YaRN.
  const double original = static_cast<double>(desc.rope_yarn.original_context);
  DLLM_TRY(desc.query_growth.length, positive(keys, "attention.temperature_length", original));
  desc.query_growth.beta = static_cast<float>(*beta);
  if (desc.rope_dims == desc.head_dim) return {};
  return Error{ErrorCode::kUnsupported, "queries grow with the position, and not all of their lanes turn",
               keys.key("attention.temperature_scale"), ""};
}

}  // namespace

Expected<void> describe_rope(KeyReader& keys, ModelDesc& desc) {
  DLLM_TRY(const auto theta, keys.number("rope.freq_base"));
  if (theta) desc.rope_theta = static_cast<float>(*theta);
  if (!(desc.rope_theta > 0))
    return Error{ErrorCode::kInvalidFile, fmt::format("{} is not a valid rope base", desc.rope_theta),
                 keys.key("rope.freq_base"), ""};
  DLLM_TRY(desc.rope_dims, keys.dim("rope.dimension_count", desc.head_dim));
  if (desc.rope_dims > desc.head_dim || desc.rope_dims % 2 != 0)
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("{} rotated dims do not fit heads of {}", desc.rope_dims, desc.head_dim),
                 keys.key("rope.dimension_count"), ""};
  DLLM_TRY(const auto scaling, keys.string("rope.scaling.type"));
  DLLM_TRY(const auto factor, keys.number("rope.scaling.factor"));
  if (scaling && *scaling != "none" && *scaling != "linear" && *scaling != "yarn")
    return Error{ErrorCode::kUnsupported, fmt::format("rope scaling '{}' is not supported", *scaling),
                 keys.key("rope.scaling.type"), "none, linear and yarn are"};
  if (factor && (!scaling || *scaling == "linear")) {
    if (!(*factor > 0))
      return Error{ErrorCode::kInvalidFile, fmt::format("{} is not a valid scaling factor", *factor),
                   keys.key("rope.scaling.factor"), ""};
    desc.rope_scale = static_cast<float>(1.0 / *factor);
  }
  if (scaling && *scaling == "yarn") DLLM_CHECK_OK(read_yarn(keys, desc));
  return read_query_growth(keys, desc);
}

}  // namespace dllm
