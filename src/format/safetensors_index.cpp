#include "format/safetensors_index.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/os_files.h"
#include "base/try.h"
#include "format/strict_json.h"
#include "format/tensor_info.h"

namespace dllm {

Expected<std::map<std::string, std::string, std::less<>>> parse_safetensors_index(std::span<const std::byte> text,
                                                                                  std::string_view name) {
  const auto invalid = [&](std::string what) {
    return Error{ErrorCode::kInvalidFile, std::move(what), std::string(name),
                 "fetch the file again, or remove it if the model is not split"};
  };
  DLLM_TRY(const auto json, parse_strict_json(text, name));
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    return invalid("the index has no object 'weight_map'");
  std::map<std::string, std::string, std::less<>> files;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string()) return invalid(fmt::format("the file of tensor {} is not a string", quote_name(tensor)));
    const auto& shard = file.template get_ref<const std::string&>();
    if (shard.empty() || shard == "." || shard == ".." || file_name_at(shard) != 0 ||
        shard.find('\0') != std::string::npos)
      return invalid(
          fmt::format("the file {} of tensor {} is not a plain file name", quote_name(shard), quote_name(tensor)));
    files.emplace(tensor, shard);
  }
  if (files.empty()) return invalid("the 'weight_map' is empty");
  return files;
}

}  // namespace dllm
