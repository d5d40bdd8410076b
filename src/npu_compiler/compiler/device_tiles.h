#pragma once

#include <cstdint>
#include <string>

#include "dllm/error.h"

namespace dllm::npu {

struct Device;

/// The type of a device's weights as recipes name it: "Q4_0" or "Q8_0". Errors: kUsage (the device's weights are not
/// stored in tiles of 32 x 32), and the machine's.
Expected<std::string> tile_recipe(const Device& device);

struct TileReport {
  std::int64_t tiled = 0;  ///< matrices in tiles
  std::int64_t kept = 0;   ///< other tensors, in rows
};

/// Rewrites the GGUF file, whose matrices have the device's type, with them in the order of the device's memory; the
/// backend npu copies them there. Matrices of which tiles would not keep every block, and those that are the
/// embedding's table too, remain in rows. The file is replaced by a complete one or not at all. Errors: of
/// Model::load(), of the layout (the model does not fit the device), kIo.
Expected<TileReport> write_device_tiles(const std::string& path, const Device& device);

}  // namespace dllm::npu
