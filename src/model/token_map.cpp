#include "model/token_map.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

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
    for (std::size_t at = 0; at < tensor.data.size(); at += bytes) {
      std::int64_t wide = 0;
      std::int32_t narrow = 0;
      if (bytes == sizeof(wide))
        std::memcpy(&wide, tensor.data.data() + at, sizeof(wide));
      else
        std::memcpy(&narrow, tensor.data.data() + at, sizeof(narrow)), wide = narrow;
      tokens.push_back(static_cast<float>(wide) + static_cast<float>(tokens.size()));
    }
  }
  return tokens;
}

}  // namespace dllm
