#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "format/metadata.h"
#include "format/safetensors.h"
#include "model/hf_config.h"
#include "model/model_desc.h"

namespace dllm {

/// The GGUF equivalent of a Hugging Face tensor.
struct TensorRename {
  /// "model.transformer.blocks.{}.q_proj", without ".weight" / ".bias"; the first {} is the layer. A second {} is an
  /// expert: the experts' matrices become one tensor, stacked in the order of their numbers.
  std::string hf;
  /// "blk.{}.attn_q"; its ".weight" or ".bias" included if the Hugging Face name has none.
  std::string gguf;
};

/// A tensor that GGUF files have and Hugging Face checkpoints do not, because it follows from the configuration.
struct GeneratedTensor {
  std::string name;
  std::vector<float> values;
  Shape shape{};  ///< empty: a vector
};

class KeyReader;

/// One family of models. Everything specific to it is in this record and in its one source file; no other code tests
/// for an architecture by name.
struct Architecture {
  std::string_view name;                           ///< GGUF `general.architecture`
  std::vector<std::string_view> hf_architectures;  ///< `architectures[0]` of config.json
  /// With layers of experts; the file must give their number.
  bool experts = false;
  /// Autoregressive models, which this build does not run, have the same name: the file must have a mask token.
  bool names_mask = false;
  /// Sets facts that hold where the file has no key (called before the metadata is read).
  std::function<void(ModelDesc&)> set_defaults;
  /// Reads keys that only this family has: layers of several kinds (and then `attention.head_count_kv`), canvases.
  std::function<Expected<void>(KeyReader&, ModelDesc&)> read_layers{};
  /// Texts of control tokens that end an answer in addition to `eos`, where the vocabulary has them.
  std::vector<std::string_view> stop_texts;
  /// One step of the model. Weight ids do not depend on the shape.
  std::function<Graph(const ModelDesc&, StepShape)> build;
  /// Of drafters: reads hidden states of the target and stores their K and V. The weights are those of build(). Other
  /// models have none.
  std::function<Graph(const ModelDesc&, StepShape)> build_context{};

  /// Conversion: model keys ({arch}.*, diffusion.*) from config.json, and tokenizer.* keys that override the
  /// tokenizer's files.
  std::function<Expected<Metadata>(const HfConfig&)> metadata_from_hf;
  std::vector<TensorRename> renames;
  /// Prefixes of the Hugging Face names of tensors outside the language model, which are left out.
  std::vector<std::string_view> left_out{};
  /// Ends of the Hugging Face names of what other programs keep in the checkpoint and the model does not read.
  std::vector<std::string_view> derived{};
  /// Of drafters: a list of integers, with or without "model." in front, that says how far behind its own row the token
  /// of a row is (EAGLE-3's form of a vocabulary for drafts). Here and in GGUF it has the tokens themselves.
  std::string_view token_map{};
  std::function<Expected<std::vector<GeneratedTensor>>(const HfConfig&)> generate{};
  /// For checkpoints whose tensors are not the model's own, but determine them (constants that are computed once):
  /// makes all of the model's tensors, and `renames`, `left_out`, `derived` and `generate` are not used.
  std::function<Expected<std::vector<GeneratedTensor>>(const HfConfig&, const Safetensors&)> fold{};
  /// A checkpoint without `weight_tying` and `tie_word_embeddings` has one table for embedding and head.
  bool tied_by_default = false;
  /// Q/K rows are stored interleaved (llama.cpp's convention for this family): see permute_qk().
  bool permute_qk = false;
  /// The graph scales positions as the file's `rope.scaling` keys say.
  bool scales_rope = true;
  /// Control tokens that change the number of positions while the model decodes, in a way that this build does not
  /// know: a vocabulary that has one is refused.
  std::vector<std::string_view> refused_texts{};
  /// The importer writes it before a chat template that reads `enable_thinking`: what holds where the caller says
  /// nothing, if it differs from the template's own default.
  std::string_view thinking_default{};
  /// What the user should know of how config.json was read; empty: nothing.
  std::function<Expected<std::string>(const HfConfig&)> hf_warning{};
};

/// Whether a tensor of a checkpoint is not part of the model, or a buffer that every implementation computes itself.
bool is_left_out(const Architecture& architecture, std::string_view hf_name);

/// Every architecture of this build.
const std::vector<Architecture>& architectures();

/// Errors: kUnsupported, listing the known names.
Expected<const Architecture*> find_architecture(std::string_view gguf_name);
Expected<const Architecture*> find_hf_architecture(std::string_view hf_name);

}  // namespace dllm
