#include "model/hf_description.h"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "model/architecture.h"
#include "model/describe.h"
#include "model/hf_class.h"
#include "model/hf_text.h"

namespace dllm {

Expected<HfConfig> read_hf_config(const std::string& directory) {
  const auto path_of = [&directory](const char* name) { return (std::filesystem::path(directory) / name).string(); };
  DLLM_TRY(const std::string text, read_hf_file(directory, "config.json", true));
  DLLM_TRY(HfConfig config, HfConfig::parse(text, path_of("config.json")));
  DLLM_TRY(const std::string generation, read_hf_file(directory, "generation_config.json", false));
  if (generation.empty()) return config;
  DLLM_TRY(const HfConfig own, HfConfig::parse(generation, path_of("generation_config.json")));
  config.attach("generation_config", own);
  return config;
}

Expected<void> set_hf_lengths(const HfConfig& config, Metadata& meta) {
  const auto it = config.json().find("generation_config");
  if (it == config.json().end()) return {};
  const HfConfig generation = HfConfig::of(*it, "generation_config.json");
  for (const auto& [name, key] :
       {std::pair("gen_length", "dllm.canvas_length"), std::pair("block_length", "diffusion.block_length")}) {
    DLLM_TRY(const auto value, generation.optional_integer(name));
    if (!value || meta.contains(key)) continue;
    if (*value < 1 || *value > std::numeric_limits<std::int32_t>::max())
      return Error{ErrorCode::kInvalidFile, fmt::format("{} is not a valid length", *value),
                   fmt::format("{}, {}", generation.file(), name), ""};
    meta.set(key, MetaValue::u32(static_cast<std::uint32_t>(*value)));
  }
  return {};
}

Expected<ModelDesc> describe_hf(const std::string& directory) {
  DLLM_TRY(const HfConfig config, read_hf_config(directory));
  DLLM_TRY(const Architecture* const architecture, find_hf_model(config));
  DLLM_TRY(Metadata meta, architecture->metadata_from_hf(config));
  DLLM_CHECK_OK(set_hf_lengths(config, meta));
  DLLM_TRY(const auto vocabulary, meta.integer(fmt::format("{}.vocab_size", architecture->name)));
  const TensorFacts facts{.embedding_rows = vocabulary.value_or(std::numeric_limits<std::int32_t>::max()),
                          .tensors = std::numeric_limits<std::int32_t>::max(),
                          .has_output = true};
  const Log silent([](LogLevel, const std::string&) {});
  return describe(*architecture, meta, facts, nullptr, silent);
}

}  // namespace dllm
