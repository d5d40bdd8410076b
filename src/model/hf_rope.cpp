#include "model/hf_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "base/try.h"

namespace dllm {
namespace {

/// transformers' get_mscale (YaRN, arXiv 2309.00071, equation 15).
double temperature(double factor, double multiplier) {
  return factor <= 1 ? 1 : 0.1 * multiplier * std::log(factor) + 1;
}

constexpr std::array<std::string_view, 14> kKnown = {"rope_type",
                                                     "type",
                                                     "rope_theta",
                                                     "factor",
                                                     "original_max_position_embeddings",
                                                     "attention_factor",
                                                     "beta_fast",
                                                     "beta_slow",
                                                     "mscale",
                                                     "mscale_all_dim",
                                                     "truncate",
                                                     "finetuned",
                                                     "llama_4_scaling_beta",
                                                     "partial_rotary_factor"};

/// One of the two objects, under its name.
class RopeObject {
 public:
  RopeObject(const HfConfig& config, std::string name, const nlohmann::json& object)
      : config_(config), name_(std::move(name)), object_(object) {}

  Error wrong(ErrorCode code, std::string what, std::string hint = "") const {
    return {code, fmt::format("'{}': {}", name_, what), config_.file(), std::move(hint)};
  }

  Expected<std::optional<double>> number(const char* key) const {
    const auto it = object_.find(key);
    if (it == object_.end() || it->is_null()) return std::optional<double>();
    if (!it->is_number()) return wrong(ErrorCode::kInvalidFile, fmt::format("{} is not a number", key));
    return std::optional(it->get<double>());
  }
  Expected<double> number_or(const char* key, double fallback) const {
    DLLM_TRY(const auto found, number(key));
    return found.value_or(fallback);
  }
  /// Above 0.
  Expected<double> positive(const char* key, double fallback) const {
    DLLM_TRY(const double value, number_or(key, fallback));
    if (value > 0 && std::isfinite(value)) return value;
    return wrong(ErrorCode::kInvalidFile, fmt::format("{} = {} is not above 0", key, value));
  }

  /// A number of positions, which files keep as integers.
  Expected<double> length(const char* key, double fallback) const {
    DLLM_TRY(const double value, positive(key, fallback));
    if (value >= 1 && value <= 1 << 30) return value;
    return wrong(ErrorCode::kInvalidFile, fmt::format("{} = {} is not a length", key, value));
  }

  std::string type() const {
    for (const char* key : {"rope_type", "type"})
      if (const auto it = object_.find(key); it != object_.end() && it->is_string()) return it->get<std::string>();
    return "default";
  }

  Expected<void> check_known() const {
    for (const auto& [key, value] : object_.items())
      if (std::ranges::find(kKnown, key) == kKnown.end())
        return wrong(ErrorCode::kUnsupported, fmt::format("the parameter '{}' is unknown", key));
    return {};
  }

  Expected<HfYarn> yarn() const {
    if (const auto it = object_.find("truncate"); it != object_.end() && *it == false)
      return wrong(ErrorCode::kUnsupported, "a ramp between parts of pairs", "models with truncate = true are read");
    if (!object_.contains("factor") && !object_.contains("original_max_position_embeddings"))
      return wrong(ErrorCode::kInvalidFile, "YaRN without a factor");
    DLLM_TRY(const double longest, config_.number_or("max_position_embeddings", 0));
    HfYarn yarn;
    DLLM_TRY(yarn.original_context, length("original_max_position_embeddings", longest));
    // Without a factor it is what the longer context makes it (transformers' rule).
    DLLM_TRY(yarn.factor, positive("factor", longest / yarn.original_context));
    if (yarn.factor < 1) return wrong(ErrorCode::kInvalidFile, fmt::format("a factor of {} is below 1", yarn.factor));
    DLLM_TRY(yarn.beta_fast, positive("beta_fast", 32));
    DLLM_TRY(yarn.beta_slow, positive("beta_slow", 1));
    DLLM_TRY(const double over, number_or("mscale", 0));
    DLLM_TRY(const double under, number_or("mscale_all_dim", 0));
    const double ratio = over != 0 && under != 0 ? temperature(yarn.factor, over) / temperature(yarn.factor, under)
                                                 : temperature(yarn.factor, 1);
    DLLM_TRY(yarn.attention_factor, positive("attention_factor", ratio));
    return yarn;
  }

 private:
  const HfConfig& config_;
  std::string name_;
  const nlohmann::json& object_;
};

}  // namespace

/// Newer files have rope_parameters {rope_theta, rope_type, …}, older ones rope_theta and rope_scaling, which may be
/// false for none. As transformers reads them (convert_rope_params_to_dict in its modeling_rope_utils.py): rope_scaling
/// replaces rope_parameters, and an object's rope_theta counts before the configuration's.
Expected<HfRope> rope_from_hf(const HfConfig& config, double theta) {
  HfRope rope;
  DLLM_TRY(rope.theta, config.number_or("rope_theta", theta));
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto it = config.json().find(key);
    if (it == config.json().end() || it->is_null() || *it == false) continue;
    const nlohmann::json& object = *it;
    if (!object.is_object()) return Error{ErrorCode::kUnsupported, fmt::format("'{}' is set", key), config.file(), ""};
    if (object.empty()) continue;
    const RopeObject parameters(config, key, object);
    const std::string type = parameters.type();
    if (type != "default" && type != "yarn" && type != "linear")
      return parameters.wrong(ErrorCode::kUnsupported, fmt::format("scaling by '{}'", type),
                              type == "dynamic"
                                  ? "remove it, and give --rope-scaling ntk with a factor"
                                  : "convert the file with llama.cpp, whose GGUFs carry the scaled frequencies");
    DLLM_CHECK_OK(parameters.check_known());
    DLLM_TRY(rope.theta, parameters.positive("rope_theta", rope.theta));
    DLLM_TRY(rope.rotated_share, parameters.number("partial_rotary_factor"));
    if (type == "yarn") {
      DLLM_TRY(rope.yarn, parameters.yarn());
    }
    if (type == "linear") {
      if (!object.contains("factor"))
        return parameters.wrong(ErrorCode::kInvalidFile, "linear scaling without a factor");
      DLLM_TRY(rope.linear, parameters.positive("factor", 1));
    }
    // transformers asks for both, whatever the type.
    DLLM_TRY(rope.query_beta, parameters.number_or("llama_4_scaling_beta", 0));
    if (!object.contains("original_max_position_embeddings")) rope.query_beta = 0;
    if (rope.query_beta != 0) {
      DLLM_TRY(rope.query_length, parameters.length("original_max_position_embeddings", 0));
    }
    break;
  }
  return rope;
}

void set_rope_metadata(std::string_view architecture, const HfRope& rope, Metadata& meta) {
  const auto set = [&](std::string_view tail, double value) {
    meta.set(fmt::format("{}.{}", architecture, tail), MetaValue::f32(static_cast<float>(value)));
  };
  const auto length = [&](std::string_view tail, double value) {
    meta.set(fmt::format("{}.{}", architecture, tail), MetaValue::u32(static_cast<std::uint32_t>(value)));
  };
  if (rope.yarn) {
    const HfYarn& yarn = *rope.yarn;
    meta.set(fmt::format("{}.rope.scaling.type", architecture), MetaValue::string("yarn"));
    set("rope.scaling.factor", yarn.factor);
    length("rope.scaling.original_context_length", yarn.original_context);
    set("rope.scaling.yarn_beta_fast", yarn.beta_fast);
    set("rope.scaling.yarn_beta_slow", yarn.beta_slow);
    // Readers multiply by the temperature of the factor again.
    set("rope.scaling.attn_factor", yarn.attention_factor / temperature(yarn.factor, 1));
  }
  if (rope.linear) {
    meta.set(fmt::format("{}.rope.scaling.type", architecture), MetaValue::string("linear"));
    set("rope.scaling.factor", *rope.linear);
  }
  if (rope.query_beta != 0) {
    set("attention.temperature_scale", rope.query_beta);
    length("attention.temperature_length", rope.query_length);
  }
}

}  // namespace dllm
