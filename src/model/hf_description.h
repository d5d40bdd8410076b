#pragma once

#include <string>

#include "dllm/error.h"
#include "format/metadata.h"
#include "model/hf_config.h"
#include "model/model_desc.h"

namespace dllm {

/// config.json of a Hugging Face checkpoint, with generation_config.json under "generation_config" if there is one.
/// Errors: kIo, kInvalidFile.
Expected<HfConfig> read_hf_config(const std::string& directory);

/// The recommendations of generation_config.json, with the names of LLaDA's generate(). Keys that are set stay. Errors:
/// kInvalidFile.
Expected<void> set_hf_lengths(const HfConfig& config, Metadata& meta);

/// What the configuration alone says about a checkpoint: no tensor and no tokenizer is read, so nothing that depends on
/// them is in the result (stop tokens, tied embeddings). Errors: those of find_hf_model() and describe().
Expected<ModelDesc> describe_hf(const std::string& directory);

}  // namespace dllm
