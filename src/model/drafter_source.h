#pragma once

#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "model/model.h"
#include "model/source.h"

namespace dllm {

/// Whether the file says that it is a drafter (DFlash): its architecture runs beside a target only.
bool is_drafter(const ModelSource& source);

/// Gives a drafter what its file leaves to the target: embedding, head and tokenizer, as views of the target's bytes,
/// and keys for what only the shapes of its tensors say. Errors: kMismatch with both names, if the drafter was made for
/// another model; kUnsupported, for parts that this build does not know.
Expected<void> complete_drafter(const Model& target, ModelSource& drafter);

/// The same questions of a drafter that was loaded. Errors: kMismatch with both names.
Expected<void> check_drafter(const Model& target, const Model& drafter);

/// A tensor of a drafter in float32, row by row; empty if it has none.
std::vector<float> drafter_values(const Model& drafter, std::string_view name);

}  // namespace dllm
