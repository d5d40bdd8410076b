#pragma once

#include <vector>

#include "decode/method_entry.h"

namespace dllm {

/// The one window and the one cache policy of models that refine whole canvases, named after the closest equivalents.
/// They have no options, and nothing is made of them: Refiner needs none.
const std::vector<MethodDeclaration>& canvas_windows();
const std::vector<MethodDeclaration>& canvas_caches();

}  // namespace dllm
