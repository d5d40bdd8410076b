#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "model/weights.h"
#include "npu_compiler/compiler/layout.h"

// Matrices that a file stores as a device's memory holds them: tiles of 32 x 32 packed weights, panel after panel.

namespace dllm::npu {

/// Keys of such files: the order of tiles, and the device for which they were made, for people.
inline constexpr std::string_view kTileOrderKey = "dllm.tile_order", kTileDeviceKey = "dllm.tile_device";

/// Everything about a machine that decides which weight is where. Machines with the same order read the same files.
std::string tile_order(const MachineConfig& machine);

/// Whether a machine's weights can be stored in tiles. Errors: kUsage, with the reason.
Expected<void> check_tile_machine(const MachineConfig& machine);

/// The matrix if tiles hold the weight as it is stored, bit for bit: packed in the machine's format, with blocks that
/// remain blocks of lanes, and not used as a table too; else null. Precondition: check_tile_machine().
const WeightPlace* tiled_place(const ModelLayout& layout, WeightId id, const WeightView& view);

/// The tensor of a file that holds a matrix in tiles.
struct TileTensor {
  TensorType type;
  Shape shape;
};
TileTensor tile_tensor(const WeightPlace& place);

/// The matrix in the order of the machine's memory.
std::vector<std::byte> to_tiles(const WeightPlace& place, const WeightView& view, const MachineConfig& machine);
/// The inverse: rows of GGML's blocks, in the view's shape.
std::vector<std::byte> from_tiles(const WeightPlace& place, const WeightView& view, const MachineConfig& machine);

/// Whether tiles among the weights are whole matrices of the layout. Errors: kInvalidFile.
Expected<void> check_tiles(const ModelLayout& layout, const Weights& weights);

}  // namespace dllm::npu
