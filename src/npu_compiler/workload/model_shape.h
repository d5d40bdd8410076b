#pragma once

#include <string>
#include <vector>

#include "dllm/error.h"
#include "model/architecture.h"

namespace dllm::npu {

/// The shape of a model without its weights: one of model/shape.h, or a TOML file of a model that is not published.
struct ModelShape {
  ModelDesc desc;
  const Architecture* architecture = nullptr;
};
/// Errors: unknown names, keys and architectures; sizes out of range.
Expected<ModelShape> load_model_shape(const std::string& name_or_path);
/// Those of `dllm make-model`.
std::vector<std::string> model_shape_names();
/// Whether load_model_shape() knows it without a file.
bool is_model_shape(const std::string& name);

}  // namespace dllm::npu
