#include "model/peft_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/try.h"

namespace dllm {
namespace {

using Json = nlohmann::json;

/// What a key of LoraConfig and its base classes is for.
enum class PeftUse {
  kRead,       ///< by PeftConfig
  kNoMatter,   ///< for training only, about the files, or it chooses modules, which the tensors' names tell
  kMustBeOff,  ///< it changes what is computed
};

struct PeftKey {
  std::string_view name;
  PeftUse use;
};

constexpr PeftKey kPeftKeys[] = {
    {"peft_type", PeftUse::kRead},
    {"r", PeftUse::kRead},
    {"lora_alpha", PeftUse::kRead},
    {"use_rslora", PeftUse::kRead},
    {"rank_pattern", PeftUse::kRead},
    {"alpha_pattern", PeftUse::kRead},
    {"init_lora_weights", PeftUse::kRead},
    {"bias", PeftUse::kRead},
    {"task_type", PeftUse::kNoMatter},
    {"auto_mapping", PeftUse::kNoMatter},
    {"peft_version", PeftUse::kNoMatter},
    {"base_model_name_or_path", PeftUse::kNoMatter},
    {"revision", PeftUse::kNoMatter},
    {"inference_mode", PeftUse::kNoMatter},
    {"lora_dropout", PeftUse::kNoMatter},
    {"target_modules", PeftUse::kNoMatter},
    {"exclude_modules", PeftUse::kNoMatter},
    {"layers_to_transform", PeftUse::kNoMatter},
    {"layers_pattern", PeftUse::kNoMatter},
    {"megatron_core", PeftUse::kNoMatter},        // the name of a package; megatron_config uses it
    {"runtime_config", PeftUse::kNoMatter},       // where products run
    {"qalora_group_size", PeftUse::kNoMatter},    // of use_qalora
    {"loftq_config", PeftUse::kNoMatter},         // of init_lora_weights: loftq
    {"eva_config", PeftUse::kNoMatter},           // of init_lora_weights: eva
    {"corda_config", PeftUse::kNoMatter},         // of init_lora_weights: corda
    {"lora_ga_config", PeftUse::kNoMatter},       // of init_lora_weights: lora_ga
    {"ensure_weight_tying", PeftUse::kNoMatter},  // of adapted embeddings, whose tensors are refused
    {"fan_in_fan_out", PeftUse::kMustBeOff},
    {"modules_to_save", PeftUse::kMustBeOff},
    {"megatron_config", PeftUse::kMustBeOff},
    {"trainable_token_indices", PeftUse::kMustBeOff},
    {"use_dora", PeftUse::kMustBeOff},
    {"velora_config", PeftUse::kMustBeOff},
    {"alora_invocation_tokens", PeftUse::kMustBeOff},
    {"use_qalora", PeftUse::kMustBeOff},
    {"monteclora_config", PeftUse::kMustBeOff},
    {"layer_replication", PeftUse::kMustBeOff},
    {"lora_bias", PeftUse::kMustBeOff},
    {"target_parameters", PeftUse::kMustBeOff},
    {"use_bdlora", PeftUse::kMustBeOff},
    {"arrow_config", PeftUse::kMustBeOff},
    {"kasa_config", PeftUse::kMustBeOff},
};

bool is_off(const Json& value) { return value.is_null() || value == false || (value.is_structured() && value.empty()); }

Error refused(const HfConfig& config, std::string what, std::string hint = "") {
  return {ErrorCode::kUnsupported, std::move(what), config.file(), std::move(hint)};
}

Expected<void> check_keys(const HfConfig& config) {
  for (const auto& [key, value] : config.json().items()) {
    const auto known = std::ranges::find(kPeftKeys, key, &PeftKey::name);
    if (known == std::end(kPeftKeys) && !value.is_null())
      return refused(config, fmt::format("the key '{}' is unknown, and might change what is computed", key),
                     "if PEFT ignores it too, remove it or set it to null");
    if (known != std::end(kPeftKeys) && known->use == PeftUse::kMustBeOff && !is_off(value))
      return refused(config, fmt::format("'{}' is set, and this program does not compute it", key));
  }
  return {};
}

/// The initial values of A and B. Those of some methods are taken from the matrix, from which PEFT subtracts their
/// product whenever it loads the adapter: without that, the model would compute something else.
Expected<void> check_init(const HfConfig& config) {
  const auto it = config.json().find("init_lora_weights");
  if (it == config.json().end() || it->is_null() || it->is_boolean()) return {};
  const std::string name = it->is_string() ? it->get<std::string>() : it->dump();
  // With these the matrix stays as it is.
  for (const char* kept : {"gaussian", "orthogonal", "eva", "mica"})
    if (name == kept) return {};
  return refused(
      config, fmt::format("'init_lora_weights' is {}: the adapter belongs to a changed base model", name),
      "save it again as plain LoRA: PEFT's save_pretrained(..., path_initial_model_for_weight_conversion=...)");
}

}  // namespace

Expected<PeftConfig::Pattern> PeftConfig::read_pattern(const HfConfig& config, const char* key) {
  Pattern pattern;
  const auto it = config.json().find(key);
  if (it == config.json().end() || it->is_null()) return pattern;
  if (!it->is_object()) return refused(config, fmt::format("'{}' is no object", key));
  for (const auto& [name, value] : it->items()) {
    // PEFT matches regular expressions; names of modules are their own expressions.
    const bool plain =
        std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
    if (!plain || name.empty())
      return refused(config, fmt::format("'{}' has the expression '{}'", key, name), "names of modules are supported");
    if (!value.is_number() || !(value.get<double>() > 0))
      return refused(config, fmt::format("'{}' holds {} for '{}'", key, value.dump(), name));
    pattern.emplace_back(name, value.get<double>());
  }
  // Two keys that match the same module: PEFT takes the first of the file, whose order is not known here.
  for (const auto& [a, first] : pattern)
    for (const auto& [b, second] : pattern)
      if (first != second && (a.ends_with("." + b) || a == b))
        return refused(config, fmt::format("'{}' has two values for '{}'", key, a));
  return pattern;
}

Expected<PeftConfig> PeftConfig::read(const HfConfig& config) {
  DLLM_CHECK_OK(config.expect("peft_type", "LORA"));
  DLLM_CHECK_OK(check_keys(config));
  DLLM_CHECK_OK(config.expect("bias", "none"));
  DLLM_CHECK_OK(check_init(config));
  PeftConfig result;
  result.file_ = config.file();
  DLLM_TRY(result.rank_, config.optional_integer("r"));
  DLLM_TRY(result.alpha_, config.number_or("lora_alpha", 8));
  DLLM_TRY(result.root_, config.boolean_or("use_rslora", false));
  DLLM_TRY(result.ranks_, read_pattern(config, "rank_pattern"));
  DLLM_TRY(result.alphas_, read_pattern(config, "alpha_pattern"));
  return result;
}

std::optional<double> PeftConfig::find(const Pattern& pattern, std::string_view module) {
  for (const auto& [name, value] : pattern)
    if (module == name || module.ends_with("." + name)) return value;
  return std::nullopt;
}

Expected<double> PeftConfig::scale_of(std::string_view module, std::int64_t rank) const {
  std::optional<double> wanted = find(ranks_, module);
  if (!wanted && rank_) wanted = static_cast<double>(*rank_);
  if (wanted && *wanted != static_cast<double>(rank))
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("A of '{}' has rank {}, and the configuration says {}", module, rank, *wanted), file_, ""};
  const double alpha = find(alphas_, module).value_or(alpha_);
  return root_ ? alpha / std::sqrt(static_cast<double>(rank)) : alpha / static_cast<double>(rank);
}

}  // namespace dllm
