#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace dllm::npu {

/// A file of src/npu/profiles that the build embeds in the program.
struct EmbeddedFile {
  std::string_view name;  ///< "dram/hbm2e-3200": relative to the folder, without ".toml"
  std::string_view text;
};

/// All of them, by name.
const std::vector<EmbeddedFile>& embedded_files();

std::optional<EmbeddedFile> find_embedded_file(std::string_view name);

}  // namespace dllm::npu
