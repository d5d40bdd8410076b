#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "model/source.h"

namespace dllm {

/// What is rotated before the weights are rounded, so that outliers of single channels are spread over all of them
/// (QuaRot, Ashkboos et al. 2024, arXiv:2404.00456). The network computes the same function, up to rounding.
enum class Rotation {
  kNone,
  kHeads,     ///< values of each head, between attn_v and attn_output
  kOffline,   ///< ... and the residual stream: everything that reads or writes it; all of it is folded into weights
  kQuarot,    ///< ... and what the graph rotates in every step: queries and keys, and the inputs of ffn_down
  kSelective  ///< of the parts of kOffline, those whose rotation lets the weights be rounded with less error
};

/// "none", "heads", "offline", "quarot", "selective". Errors: kUsage.
Expected<Rotation> rotation_named(std::string_view name);

struct RotationOptions {
  Rotation rotation = Rotation::kQuarot;
  std::int32_t order = 0;           ///< of kQuarot: limit of Hadamard::largest_online() for the transforms of the graph
  std::vector<TensorType> types{};  ///< of kSelective: what each of the source's tensors is rounded to
  int threads = 1;
  std::function<bool()> cancelled{};
};

/// Writes the rotated model to the file `path`, as F32 where a tensor changes, and returns it. The gains of the norms
/// are folded into the matrices that read them, and a head that shares the embedding's table gets its own. What the
/// graph rotates is in the keys of online_rotation_keys(); a width without a known order is left as it is. The file has
/// no name any more when this returns; its space is free when the source is. Holds one matrix in memory, as float32.
/// Errors: kUnsupported (a model with other parts than RMSNorm, attention, SwiGLU and experts; an order without a known
/// Hadamard matrix); kCancelled; those of reading and writing.
Expected<ModelSource> rotated_source(const ModelSource& source, const RotationOptions& options,
                                     const std::string& path);

}  // namespace dllm
