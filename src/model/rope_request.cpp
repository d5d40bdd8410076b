#include "model/rope_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/try.h"
#include "model/architecture.h"
#include "model/key_reader.h"

namespace dllm {
namespace {

constexpr double kLongestContext = 1 << 30;
constexpr std::array<std::string_view, 11> kScalingTails = {"type",
                                                            "factor",
                                                            "original_context_length",
                                                            "finetuned",
                                                            "attn_factor",
                                                            "yarn_ext_factor",
                                                            "yarn_attn_factor",
                                                            "yarn_beta_fast",
                                                            "yarn_beta_slow",
                                                            "yarn_log_multiplier",
                                                            "yarn_orig_ctx"};

Expected<void> check_request(const RopeRequest& request) {
  const auto wrong = [](std::string what, const char* flag, const char* hint) {
    return Error{ErrorCode::kUsage, std::move(what), flag, hint};
  };
  const bool named = !request.scaling.empty();
  if (named && request.scaling != "none" && request.scaling != "linear" && request.scaling != "ntk" &&
      request.scaling != "yarn")
    return wrong(fmt::format("'{}' is unknown", request.scaling), "--rope-scaling", "none, linear, ntk or yarn");
  const bool scales = named && request.scaling != "none";
  for (const auto& [given, flag] :
       {std::pair(request.factor != 0, "--rope-scale"), std::pair(request.original != 0, "--rope-original-context")})
    if (given && !scales)
      return wrong("nothing reads it without a scaling", flag, "add --rope-scaling linear, ntk or yarn");
  if (scales && !(request.factor > 1 && std::isfinite(request.factor)))
    return wrong("the scaling needs a factor above 1", "--rope-scale", "how many times as long contexts become");
  if (request.original < 0) return wrong("it is below 0", "--rope-original-context", "");
  return {};
}

/// Lanes of a head that turn, by the rules of describe().
Expected<std::int64_t> rotated_lanes(KeyReader& keys) {
  DLLM_TRY(const std::int64_t width, keys.dim("embedding_length"));
  DLLM_TRY(const std::int64_t heads, keys.dim("attention.head_count"));
  DLLM_TRY(const std::int64_t head, keys.dim("attention.key_length", std::max<std::int64_t>(1, width / heads)));
  return keys.dim("rope.dimension_count", head);
}

/// The context before the file's own scaling: as it says, or, under linear scaling, what the factor makes of it.
Expected<double> trained_context(KeyReader& keys, double context) {
  DLLM_TRY(const auto original, keys.number("rope.scaling.original_context_length"));
  if (original && *original >= 1) return *original;
  DLLM_TRY(const auto type, keys.string("rope.scaling.type"));
  DLLM_TRY(const auto factor, keys.number("rope.scaling.factor"));
  const bool linear = factor && *factor > 1 && (!type || *type == "linear");
  return linear ? std::max(1.0, std::floor(context / *factor)) : context;
}

}  // namespace

Expected<void> rescale_rope(const RopeRequest& request, ModelSource& source) {
  DLLM_CHECK_OK(check_request(request));
  if (request.scaling.empty()) return {};
  Metadata& meta = source.metadata;
  DLLM_TRY(const auto name, meta.string("general.architecture"));
  DLLM_TRY(const Architecture* architecture, find_architecture(name.value_or("")));
  if (source.find("rope_freqs.weight") != nullptr)
    return Error{ErrorCode::kUnsupported, "the file has frequencies of its own, which no other scaling replaces",
                 "--rope-scaling", "leave the option out"};
  ModelDesc defaults;
  architecture->set_defaults(defaults);
  KeyReader keys(*architecture, meta);
  DLLM_TRY(const std::int64_t context, keys.dim("context_length", defaults.context_length));
  DLLM_TRY(const double own, trained_context(keys, static_cast<double>(context)));
  const double trained = request.original > 0 ? static_cast<double>(request.original) : own;
  DLLM_TRY(const auto base, keys.number("rope.freq_base"));
  DLLM_TRY(const std::int64_t lanes, rotated_lanes(keys));
  for (const std::string_view tail : kScalingTails) meta.erase(keys.key(fmt::format("rope.scaling.{}", tail)));
  const double longer = request.scaling == "none" ? 1 : request.factor;
  if (!(trained * longer <= kLongestContext))
    return Error{ErrorCode::kUsage, fmt::format("a context of {:.0f} positions is too long", trained * longer),
                 "--rope-scale", ""};
  meta.set(keys.key("context_length"), MetaValue::u32(static_cast<std::uint32_t>(trained * longer)));
  if (request.scaling == "ntk") {
    if (lanes < 4)
      return Error{ErrorCode::kUnsupported, fmt::format("heads of {} lanes have one frequency", lanes),
                   "--rope-scaling", "linear"};
    const auto d = static_cast<double>(lanes);
    const double theta = base.value_or(static_cast<double>(defaults.rope_theta)) * std::pow(longer, d / (d - 2));
    meta.set(keys.key("rope.freq_base"), MetaValue::f32(static_cast<float>(theta)));
  } else if (request.scaling != "none") {
    meta.set(keys.key("rope.scaling.type"), MetaValue::string(request.scaling));
    meta.set(keys.key("rope.scaling.factor"), MetaValue::f32(static_cast<float>(longer)));
    if (request.scaling == "yarn")
      meta.set(keys.key("rope.scaling.original_context_length"), MetaValue::u32(static_cast<std::uint32_t>(trained)));
  }
  return {};
}

}  // namespace dllm
