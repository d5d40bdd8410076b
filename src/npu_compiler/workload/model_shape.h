#pragma once

#include <string>
#include <vector>

#include "dllm/error.h"
#include "model/architecture.h"

namespace dllm::npu {

/// The shape of a model without its weights, from a TOML file (profiles/models/NAME.toml or a path).
struct ModelShape {
  ModelDesc desc;
  const Architecture* architecture = nullptr;
};
/// Also by the names of `dllm make-model`. Errors: unknown names, keys and architectures; sizes out of range.
Expected<ModelShape> load_model_shape(const std::string& name_or_path);
/// Those of the shipped TOML files.
std::vector<std::string> model_shape_names();
/// Whether load_model_shape() knows it without a file of the user's.
bool is_model_shape(const std::string& name);

}  // namespace dllm::npu
