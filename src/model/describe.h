#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "dllm/error.h"
#include "format/metadata.h"
#include "model/architecture.h"
#include "model/model_desc.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {

/// The names of `diffusion.modes` and of --mode.
std::span<const std::pair<std::string_view, DecodingMode>> decoding_modes();

/// What describe() needs to know of the file's tensors.
struct TensorFacts {
  std::int64_t embedding_rows = 0;  ///< rows of token_embd.weight
  std::int64_t tensors = 0;         ///< in the file; bounds the number of layers before a graph is built
  bool has_output = false;          ///< output.weight exists (else the embedding is the head)
};

/// The model description of a file: architecture defaults, overridden by metadata. `tokenizer` may be null. Errors:
/// missing or contradictory keys (kInvalidFile), features that the graph does not implement (kUnsupported). Unknown
/// keys of the architecture are reported to `log`.
Expected<ModelDesc> describe(const Architecture& architecture, const Metadata& metadata, const TensorFacts& facts,
                             const Tokenizer* tokenizer, const Log& log);

/// Ids that end an answer beyond the three that GGUF has keys for (eos, eot, eom).
inline constexpr std::string_view kMoreStopsKey = "dllm.tokenizer.stop_token_ids";

/// `dllm.quantization.rotation`: how the weights were rotated before they were quantized; absent: not at all.
inline constexpr std::string_view kRotationKey = "dllm.quantization.rotation";

/// The keys of an OnlineRotation, the columns that each one's order divides, and its members.
struct OnlineRotationKey {
  std::string_view key;
  std::int64_t width;
  std::int64_t OnlineRotation::* order;
};
std::vector<OnlineRotationKey> online_rotation_keys(const ModelDesc& desc);

/// `diffusion.attention_block`: who sees whom, for architectures whose files differ in it. 0: every position sees every
/// other; B: block-causal, on a grid from position 0 that is also that of decoding; 1 is the causal mask. Absent: as
/// the architecture's published files.
inline constexpr std::string_view kAttentionBlockKey = "diffusion.attention_block";
/// Bool: ModelDesc::soft_tokens. This project's.
inline constexpr std::string_view kSoftTokensKey = "dllm.soft_tokens";

/// `dllm.canvas_length`: the recommended length of the canvas after the prompt, for which answers were trained; 0: not
/// in the file. Not `diffusion.canvas_length`, because llama.cpp takes a file with that key for one that refines whole
/// canvases (DiffusionGemma). Errors: kInvalidFile.
Expected<std::int32_t> canvas_length(const Metadata& metadata);

}  // namespace dllm
