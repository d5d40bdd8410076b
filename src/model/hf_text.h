#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/types.h"
#include "dllm/error.h"
#include "format/metadata.h"
#include "model/hf_config.h"

namespace dllm {

/// What converting the tokenizer needs to know about the model.
struct HfTextFacts {
  std::int64_t embedding_rows = 0;  ///< the vocabulary is padded to this size
  /// The mask token of the architecture's published models; none: the model does not use one. Its id is used if no file
  /// names a mask and that id is not a word.
  std::optional<TokenId> mask{};
};

/// Sets `tokenizer.*` from tokenizer.json (or vocab.json and merges.txt), tokenizer_config.json,
/// generation_config.json, the chat template's file and the token ids of config.json. Errors name file and key: no
/// tokenizer, ids outside the embedding, no mask token. `warnings`: what the files contradict themselves in.
Expected<void> add_hf_text(const std::string& directory, const HfConfig& config, const HfTextFacts& facts,
                           Metadata& metadata, std::vector<std::string>& warnings);

/// The text of a file in the directory; empty if there is none and it is not `required`.
Expected<std::string> read_hf_file(const std::string& directory, const std::string& name, bool required);

}  // namespace dllm
