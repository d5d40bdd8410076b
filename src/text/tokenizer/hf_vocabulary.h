#pragma once

#include <string>

#include "dllm/error.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {

/// The texts of a directory whose tokenizer was never converted: the files of Python tokenizers of the GPT-2 family, as
/// in Dream's and SDAR's repositories.
struct HfVocabularyFiles {
  std::string vocabulary;  ///< vocab.json: {token: id}
  std::string merges;      ///< merges.txt: a line per merge, after a line "#version"
  std::string added;       ///< added_tokens.json: {token: id}; may be empty
  std::string special;     ///< special_tokens_map.json: which of them are special; may be empty
  std::string config;      ///< tokenizer_config.json; may be empty
};

/// The tokenizer that they define. How text is split is not in any file but in the class named by `tokenizer_class`:
/// those of Qwen2 (Dream's is a copy) and GPT-2 are supported. Errors: other classes (kUnsupported), malformed files
/// (kInvalidFile); `where` is the file's name.
Expected<TokenizerSpec> spec_from_hf_vocabulary(const HfVocabularyFiles& files);

}  // namespace dllm
