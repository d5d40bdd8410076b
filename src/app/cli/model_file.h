#pragma once

#include <string>

#include "dllm/error.h"
#include "format/gguf.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm::app {

/// The kind of model at a path.
enum class FileKind { kGguf, kSafetensors, kHfDirectory, kTokenizerJson };

/// Errors: kIo (missing), kInvalidFile (none of these kinds).
Expected<FileKind> file_kind(const std::string& path);

/// A GGUF file by path; empty: the embedded model.
Expected<GgufFile> open_gguf(const std::string& path);

/// The tokenizer of a GGUF file (including vocabulary-only ones), a Hugging Face directory or a tokenizer.json; empty:
/// of the embedded model. Does not read weights.
Expected<Tokenizer> open_tokenizer(const std::string& path);

/// "1,2,3", "1 2 3" or both. Errors: kUsage, naming the word and `where`.
Expected<std::vector<TokenId>> parse_ids(std::string_view text, const std::string& where);

}  // namespace dllm::app
