#include "model/tensor_check.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string_view>

#include "base/try.h"

namespace dllm {
namespace {

Expected<void> check_tensor(const SourceTensor& tensor, const WeightDecl& decl) {
  if (!same_shape(tensor.shape, decl.shape))
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("shape {} contradicts the metadata, which promises {}", to_string(tensor.shape),
                             to_string(decl.shape)),
                 decl.name, ""};
  if (decl.shape.size() == 1 && codec(tensor.type).is_block())
    return Error{ErrorCode::kUnsupported, fmt::format("type {} is not supported for vectors", codec(tensor.type).name),
                 decl.name, ""};
  return {};
}

}  // namespace

bool same_shape(const Shape& found, const Shape& declared) {
  Shape shape = found;
  while (shape.size() > declared.size() && shape.back() == 1) shape.pop_back();
  return shape == declared;
}

Expected<void> check_tensors(const Graph& graph, const std::vector<SourceTensor>& tensors) {
  std::map<std::string_view, const SourceTensor*> by_name;
  for (const SourceTensor& tensor : tensors) by_name.emplace(tensor.name, &tensor);
  std::set<std::string_view> known;
  for (const WeightDecl& decl : graph.weights) {
    known.insert(decl.name);
    if (const auto found = by_name.find(decl.name); found != by_name.end()) {
      DLLM_CHECK_OK(check_tensor(*found->second, decl));
    } else if (decl.required) {
      return Error{ErrorCode::kInvalidFile, "the tensor is missing", decl.name, "the file is cut or of another model"};
    }
  }
  for (const SourceTensor& tensor : tensors)
    if (!known.contains(tensor.name))
      return Error{ErrorCode::kUnsupported, "the architecture has no such tensor", tensor.name,
                   "running without it would be silently wrong"};
  return {};
}

}  // namespace dllm
