#pragma once

#include <cstddef>
#include <vector>

#include "dllm/model.h"

namespace dllm {

/// No token that ends an answer or a turn is ever chosen. Errors: kUsage (GenerateOptions::logit_bias is no list).
Expected<void> never_end(const LanguageModel& model, GenerateOptions& options);

/// The same for a form: its gaps say how long they are, and one that the model ended at once would be empty. Nothing
/// changes if the caller decided about end-of-sequence tokens, or the model has no way to leave them out.
void fill_gaps(const LanguageModel& model, GenerateOptions& options);

/// The gaps without text, as indices into Generation::slots: the model ended them at once.
std::vector<std::size_t> empty_slots(const Generation& answer);

}  // namespace dllm
