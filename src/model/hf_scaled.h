#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "format/safetensors.h"
#include "model/hf_config.h"

namespace dllm {

/// Matrices that a checkpoint stores as small floats with scales, decoded.
struct ScaledTensors {
  std::vector<SafeTensor> tensors;  ///< BF16 or MXFP4, under the names of the plain checkpoint
  std::set<std::string, std::less<>>
      parts;  ///< names of the file's tensors that they were made of, or that go with them
  std::vector<std::unique_ptr<std::byte[]>> bytes;  ///< of `tensors`
};

/// FP8 (E4M3) with a scale per tensor, row or block; NVFP4 (E2M1, an E4M3 scale per 16 and one per tensor); MXFP4
/// (E2M1, an E8M0 scale per 32). Layouts: transformers' "fp8", compressed-tensors (RedHatAI), modelopt (nvidia). MXFP4
/// is kept bit for bit; products of a value and its scales are rounded to BF16, as loading them in that type does.
/// Scales of activations and of K/V are left out. Empty for other checkpoints. `is_left_out`: of the file's names,
/// those that nobody reads, which are not decoded. Errors: other methods of quantization (kUnsupported); scales that
/// are missing or do not fit, weights that are not finite (kInvalidFile).
Expected<ScaledTensors> decode_scaled(const Safetensors& files, const HfConfig& config,
                                      const std::function<bool(std::string_view)>& is_left_out);

}  // namespace dllm
