#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "model/architecture.h"

namespace dllm {

Architecture llada_architecture();
Architecture dream_architecture();
Architecture llama_architecture();
Architecture llada_moe_architecture();
Architecture llada2_architecture();
Architecture bailingmoe2_architecture();
Architecture rnd1_architecture();
Architecture sdar_architecture();
Architecture sdar_moe_architecture();
Architecture fast_dllm_v2_architecture();
Architecture qwen2_architecture();
Architecture qwen3_architecture();
Architecture qwen3moe_architecture();
Architecture diffusion_gemma_architecture();
Architecture nemotron_architecture();
Architecture mdlm_architecture();
Architecture dflash_architecture();
Architecture a2d_qwen3_architecture();
Architecture a2d_qwen2_architecture();
Architecture a2d_llama_architecture();
Architecture stable_diffcoder_architecture();
Architecture wedlm_architecture();
Architecture idlm_architecture();
Architecture refusion_architecture();

bool is_left_out(const Architecture& architecture, std::string_view hf_name) {
  // Buffers that transformers stores, or stored in earlier versions: frequencies and tables of RoPE, numbers of
  // positions, causal masks.
  static constexpr std::string_view kBuffers[] = {".rotary_emb.inv_freq",   ".rotary_emb.original_inv_freq",
                                                  ".rotary_emb.cos_cached", ".rotary_emb.sin_cached",
                                                  ".position_ids",          ".masked_bias"};
  const auto begins = [hf_name](std::string_view begin) { return hf_name.starts_with(begin); };
  const auto ends = [hf_name](std::string_view end) { return hf_name.ends_with(end); };
  return std::ranges::any_of(architecture.left_out, begins) || std::ranges::any_of(architecture.derived, ends) ||
         std::ranges::any_of(kBuffers, ends);
}

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = {
      llada_architecture(),
      dream_architecture(),
      llama_architecture(),
      llada_moe_architecture(),
      llada2_architecture(),
      bailingmoe2_architecture(),
      rnd1_architecture(),
      sdar_architecture(),
      sdar_moe_architecture(),
      fast_dllm_v2_architecture(),
      qwen2_architecture(),
      qwen3_architecture(),
      qwen3moe_architecture(),
      diffusion_gemma_architecture(),
      nemotron_architecture(),
      mdlm_architecture(),
      dflash_architecture(),
      a2d_qwen3_architecture(),
      a2d_qwen2_architecture(),
      a2d_llama_architecture(),
      stable_diffcoder_architecture(),
      wedlm_architecture(),
      idlm_architecture(),
      refusion_architecture(),
  };
  return all;
}

Expected<const Architecture*> find_architecture(std::string_view gguf_name) {
  std::vector<std::string_view> names;
  for (const Architecture& architecture : architectures()) {
    if (architecture.name == gguf_name) return &architecture;
    names.push_back(architecture.name);
  }
  return Error{ErrorCode::kUnsupported, fmt::format("unknown model architecture '{}'", gguf_name),
               "general.architecture", fmt::format("this build runs {}", fmt::join(names, ", "))};
}

Expected<const Architecture*> find_hf_architecture(std::string_view hf_name) {
  std::vector<std::string_view> names;
  for (const Architecture& architecture : architectures()) {
    const auto& own = architecture.hf_architectures;
    if (std::find(own.begin(), own.end(), hf_name) != own.end()) return &architecture;
    names.insert(names.end(), own.begin(), own.end());
  }
  return Error{ErrorCode::kUnsupported, fmt::format("unknown model architecture '{}'", hf_name),
               "config.json, architectures", fmt::format("this build converts {}", fmt::join(names, ", "))};
}

}  // namespace dllm
