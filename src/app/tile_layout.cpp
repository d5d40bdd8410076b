#include "app/tile_layout.h"

#include <fmt/format.h>

#include "base/try.h"
#include "npu_compiler/compiler/device_tiles.h"
#include "npu_core/device/profile.h"

namespace dllm::app {

Expected<TileLayout> TileLayout::of(const std::string& device) {
  DLLM_TRY(npu::Device found, npu::load_device(device));
  TileLayout layout;
  DLLM_TRY(layout.type_, npu::tile_recipe(found));
  layout.name_ = found.name;
  layout.device_ = std::make_shared<const npu::Device>(std::move(found));
  return layout;
}

Expected<std::string> TileLayout::apply(const std::string& path) const {
  DLLM_TRY(const auto report, npu::write_device_tiles(path, *device_));
  return fmt::format("{} matrices in tiles of {}, {} tensors in rows\n", report.tiled, name_, report.kept);
}

}  // namespace dllm::app
