#pragma once

#include <string_view>
#include <vector>

#include "decode/method_entry.h"

namespace dllm {

/// The windows and the one cache policy of models that refine whole canvases, named after the closest equivalents. They
/// have no options, and nothing is made of them: Refiner needs none.
const std::vector<MethodDeclaration>& canvas_windows();
const std::vector<MethodDeclaration>& canvas_caches();

/// Whether canvases grow with the answer under the window of that name.
bool canvases_grow(std::string_view window);

}  // namespace dllm
