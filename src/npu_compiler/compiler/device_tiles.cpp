#include "npu_compiler/compiler/device_tiles.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/try.h"
#include "format/gguf.h"
#include "model/model.h"
#include "npu_compiler/compiler/tiled_weights.h"
#include "npu_compiler/compiler/weights_image.h"
#include "npu_core/device/device.h"
#include "npu_core/device/keys.h"
#include "npu_core/machine/device_machine.h"

namespace dllm::npu {

Expected<std::string> tile_recipe(const Device& device) {
  DLLM_TRY(const MachineConfig machine, machine_config(device));
  DLLM_CHECK_OK(check_tile_machine(machine));
  return std::string(machine.weight.element == MxElement::kQ4_0 ? "Q4_0" : "Q8_0");
}

Expected<TileReport> write_device_tiles(const std::string& path, const Device& device) {
  DLLM_TRY(const std::shared_ptr<const Model> model, Model::load(path, Log([](LogLevel, const std::string&) {})));
  DLLM_TRY(const MachineConfig machine, machine_config(device));
  DLLM_CHECK_OK(check_tile_machine(machine));
  const Graph graph = model->build({1, 1});
  DLLM_TRY(const ModelLayout layout, make_layout(graph, model->weights(), machine, 1));
  std::map<const std::byte*, std::pair<const WeightPlace*, const WeightView*>> places;  // by the weight's bytes
  for (std::size_t id = 0; id < graph.weights.size(); ++id) {
    const WeightView& view = model->weights()[id];
    if (!view.present()) continue;
    if (const auto* place = tiled_place(layout, static_cast<WeightId>(id), view))
      places[view.data.data()] = {place, &view};
  }
  Metadata metadata = model->metadata();
  metadata.set(std::string(kTileOrderKey), MetaValue::string(tile_order(machine)));
  metadata.set(std::string(kTileDeviceKey), MetaValue::string(device.name));
  TileReport report;
  std::vector<std::byte> bytes;
  GgufWriter writer(std::move(metadata));
  for (const SourceTensor& tensor : model->tensors()) {
    const auto found = places.find(tensor.data.data());
    if (found == places.end() || found->second.second->data.size() != tensor.data.size()) {
      DLLM_CHECK_OK(writer.add(tensor.name, tensor.type, tensor.shape,
                               [&tensor]() -> Expected<std::span<const std::byte>> { return tensor.data; }));
      ++report.kept;
      continue;
    }
    const auto [place, view] = found->second;
    const TileTensor tiles = tile_tensor(*place);
    DLLM_CHECK_OK(writer.add(tensor.name, tiles.type, tiles.shape,
                             [&bytes, &machine, place, view]() -> Expected<std::span<const std::byte>> {
                               bytes = to_tiles(*place, *view, machine);
                               return std::span<const std::byte>(bytes);
                             }));
    ++report.tiled;
  }
  DLLM_CHECK_OK(writer.write(path, {.check = [&model] { return model->check(); }}));
  return report;
}

}  // namespace dllm::npu
