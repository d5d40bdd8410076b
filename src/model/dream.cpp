// Dream-v0-7B, Dream-Coder, DiffuCoder: Qwen2 weights with q/k/v biases, full attention, logits shifted by one.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/try.h"
#include "model/architecture.h"
#include "model/dense_transformer.h"
#include "model/qwen2.h"

namespace dllm {
namespace {

void set_dream_defaults(ModelDesc& desc) {
  set_qwen2_defaults(desc);
  desc.context_length = 2048;
  desc.logit_shift = 1;  // row i-1 predicts token i; files without diffusion.shift_logits rely on it
  desc.mask = 151666;
  desc.eos = 151643;
}

/// DreamOn writes these tokens to make its canvas longer or shorter; without that, a file would run and write them.
Expected<void> refuse_dreamon(const HfConfig& config) {
  const auto generation = config.json().find("generation_config");
  for (const char* key : {"expand_token_id", "delete_token_id"}) {
    const bool given = config.contains(key) || (generation != config.json().end() && generation->is_object() &&
                                                generation->contains(key) && !(*generation)[key].is_null());
    if (given)
      return Error{ErrorCode::kUnsupported,
                   fmt::format("'{}' is set: the model grows and shrinks its canvas with such tokens", key),
                   config.file(), "this build does not know that decoding (DreamOn)"};
  }
  return {};
}

Expected<Metadata> dream_metadata(const HfConfig& config) {
  DLLM_CHECK_OK(refuse_dreamon(config));
  DLLM_TRY(const DenseDims dims, dense_dims_from_hf(config, kQwen2HfDefaults));
  Metadata meta = dense_metadata("dream", dims);
  meta.set("dream.attention.causal", MetaValue::boolean(false));
  meta.set("diffusion.shift_logits", MetaValue::boolean(true));
  return meta;
}

}  // namespace

Architecture dream_architecture() {
  return {.name = "dream",
          .hf_architectures = {"DreamModel", "DreamForMaskedDiffusion"},
          .set_defaults = set_dream_defaults,
          .stop_texts = {"<|endoftext|>", "<|im_end|>"},
          .build = build_dense_transformer,
          .metadata_from_hf = dream_metadata,
          .renames = dense_renames(),
          .permute_qk = false,
          .refused_texts = {"<|expand|>", "<|delete|>"}};
}

}  // namespace dllm
