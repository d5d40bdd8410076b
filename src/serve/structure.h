#pragma once

#include "dllm/options.h"
#include "serve/json.h"

namespace dllm::serve {

/// Reads the fields that give an answer a structure into `options`: `response_format` and `text.format` (OpenAI),
/// `json_schema` (llama.cpp), `guided_json`, `guided_regex`, `guided_choice` and `structured_outputs` (vLLM),
/// `output_config.format` and `output_format` (Anthropic); `regex` is an option. Errors:
/// kUsage, `where` is the path of the keyword in the request
/// ("response_format.json_schema.schema.properties.age.multipleOf").
Expected<void> read_structure(Fields& fields, GenerateOptions& options);

/// Whether reading the request may compile a structure, which takes longer than everything else before generation.
bool may_compile(const Json& body);

}  // namespace dllm::serve
