#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"

namespace dllm::hub {

/// The files of a model.
struct Selection {
  std::vector<std::string> files;
  bool directory = false;  ///< a Hugging Face checkpoint: all the files; else a GGUF file, or its parts
};

/// Chooses from a repository's files: the GGUF file that ends in `quant` ("Q4_K_M", case-insensitive), or the only
/// one, with all parts of a split model, the first of them first; `file` by its path, if given; if there are no GGUF
/// files, configuration, tokenizer and safetensors. `where`: the repository, for messages. Errors: kUsage, listing the
/// choices.
Expected<Selection> select_files(const std::vector<std::string>& paths, std::string_view quant, std::string_view file,
                                 std::string_view where);

}  // namespace dllm::hub
