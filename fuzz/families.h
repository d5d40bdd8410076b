#pragma once

#include <string_view>
#include <vector>

#include "growth.h"

namespace dllm::fuzz {

/// Inputs of a fuzz target that differ in the number of one kind of part: keys, levels, items, tensors, references.
struct Family {
  const char* target;
  const char* name;
  Make make;
};

/// Of all targets. Texts only: they need nothing of what they test.
const std::vector<Family>& families();

}  // namespace dllm::fuzz
