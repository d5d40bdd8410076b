#include "model/token_map.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "format/tensor_info.h"
#include "numerics/tensor_type.h"

namespace dllm {

bool is_token_map(std::string_view map, std::string_view name) {
  if (name.starts_with("model.")) name.remove_prefix(6);
  return !map.empty() && name == map;
}

Expected<std::vector<float>> read_token_map(std::string_view map, const Safetensors& files) {
  for (const SafeTensor& tensor : files.tensors())
    if (is_token_map(map, tensor.name))
      return Error{ErrorCode::kUnsupported,
                   fmt::format("a list of tokens in {}; it is read in I64 or I32", codec(tensor.type).name),
                   tensor.name, "store it as whole numbers"};
  std::vector<float> tokens;
  for (const UnreadTensor& tensor : files.unread()) {
    if (!is_token_map(map, tensor.name)) continue;
    const std::size_t bytes = tensor.dtype == "I64" ? 8 : tensor.dtype == "I32" ? 4 : 0;
    if (bytes == 0 || tensor.shape.size() != 1) return tensor.why;
    for (const std::int64_t distance : whole_numbers(tensor.data, bytes))
      tokens.push_back(static_cast<float>(distance) + static_cast<float>(tokens.size()));
  }
  return tokens;
}

}  // namespace dllm
