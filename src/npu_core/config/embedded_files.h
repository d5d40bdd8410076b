#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace dllm::npu {

/// A TOML file of a product's folder profiles/, which the build embeds in the program (cmake/EmbedProfiles.cmake).
struct EmbeddedFile {
  std::string_view name;  ///< "dram/hbm2e-3200": relative to the folder, without ".toml"
  std::string_view text;
};
using EmbeddedFiles = std::span<const EmbeddedFile>;  ///< by name

/// Those of src/npu_core/profiles: devices and DRAM standards.
EmbeddedFiles core_profiles();

std::optional<EmbeddedFile> find_embedded_file(EmbeddedFiles files, std::string_view name);

}  // namespace dllm::npu
