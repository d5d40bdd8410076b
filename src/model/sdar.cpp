// SDAR (1.7B, 4B, 8B, 30B-A3B): Qwen3's weights; small blocks on a grid from position 0, full attention within a block,
// causal between blocks, no shift (arXiv 2510.06303). The block length of training differs between checkpoints (4 to
// 64); not all configurations contain it.
#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/try.h"
#include "model/dense_transformer.h"
#include "model/qwen3.h"

namespace dllm {
namespace {

constexpr std::int32_t kSdarBlock = 4;

void set_sdar_defaults(ModelDesc& desc) {
  set_qwen3_defaults(desc);
  desc.causal_block = kSdarBlock;
  desc.block_length = kSdarBlock;
  desc.block_origin = BlockOrigin::kAbsolute;
  desc.mask = 151669;  // <|MASK|>
}

/// 32 of "SDAR-8B-Chat-b32".
std::optional<std::int64_t> block_in_name(std::string name) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (name.find("sdar") == std::string::npos) return std::nullopt;
  for (std::size_t at = name.rfind("-b"); at != std::string::npos && at > 0; at = name.rfind("-b", at - 1)) {
    std::size_t end = at + 2;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end]))) ++end;
    const bool whole = end == name.size() || name[end] == '-' || name[end] == '_' || name[end] == '.';
    if (whole && end > at + 2 && end < at + 6) return std::stoll(name.substr(at + 2, end - at - 2));
  }
  return std::nullopt;
}

/// The block length of training, by which positions see each other. Files that do not say it are published under names
/// that do: those of the folder (also in a hub's cache) and `_name_or_path`. Absent there too: not said.
Expected<std::optional<std::int64_t>> trained_block(const HfConfig& config) {
  for (const char* key : {"block_size", "block_length"}) {
    DLLM_TRY(const auto given, config.optional_integer(key));
    if (given) return given;
  }
  if (const auto it = config.json().find("generation_config"); it != config.json().end() && it->is_object()) {
    DLLM_TRY(const auto given, HfConfig::of(*it, "generation_config.json").optional_integer("block_length"));
    if (given) return given;
  }
  DLLM_TRY(const std::string origin, config.string_or("_name_or_path", ""));
  std::error_code ignored;
  for (const std::filesystem::path& path :
       {std::filesystem::path(origin), std::filesystem::absolute(config.file(), ignored)})
    for (const std::filesystem::path& part : path)
      if (const auto block = block_in_name(part.string())) return block;
  return std::optional<std::int64_t>();
}

Expected<Metadata> metadata(std::string_view architecture, const HfConfig& config, bool experts) {
  DLLM_TRY(Metadata meta,
           qwen3_metadata(architecture, config, experts ? kQwen3MoeHfDefaults : kQwen3HfDefaults, experts));
  meta.set(fmt::format("{}.attention.causal", architecture), MetaValue::boolean(false));
  meta.set("diffusion.shift_logits", MetaValue::boolean(false));
  DLLM_TRY(const auto block, trained_block(config));
  if (block && (*block < 1 || *block > 1 << 20))
    return Error{ErrorCode::kInvalidFile, fmt::format("a block length of {}", *block), config.file(), ""};
  meta.set("diffusion.block_length", MetaValue::u32(static_cast<std::uint32_t>(block.value_or(kSdarBlock))));
  return meta;
}

Architecture architecture(std::string_view name, std::string_view hf_name, bool experts) {
  return {.name = name,
          .hf_architectures = {hf_name},
          .experts = experts,
          .set_defaults = set_sdar_defaults,
          .stop_texts = {"<|endoftext|>", "<|im_end|>"},
          .build = build_dense_transformer,
          .metadata_from_hf = [=](const HfConfig& config) { return metadata(name, config, experts); },
          .renames = qwen3_renames(experts),
          .permute_qk = false};
}

}  // namespace

Architecture sdar_architecture() { return architecture("sdar", "SDARForCausalLM", false); }
Architecture sdar_moe_architecture() { return architecture("sdar-moe", "SDARMoeForCausalLM", true); }

}  // namespace dllm
