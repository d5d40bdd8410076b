#pragma once

#include <vector>

#include "dllm/error.h"
#include "format/metadata.h"
#include "model/architecture.h"
#include "model/hf_config.h"

namespace dllm {

/// The fraction of a global layer's RoPE pairs that rotate in Gemma 4's published configuration ("proportional" RoPE).
inline constexpr double kGemmaRotatedShare = 0.25;

/// The model keys of config.json, with llama.cpp's names for Gemma 4 and its pull requests' names for DiffusionGemma.
Expected<Metadata> diffusion_gemma_metadata(const HfConfig& config);
/// rope_freqs: 1 for the pairs of a global layer that rotate, 1e30 for those that do not.
Expected<std::vector<GeneratedTensor>> diffusion_gemma_tensors(const HfConfig& config);
std::vector<TensorRename> diffusion_gemma_renames();

}  // namespace dllm
