#include "npu_compiler/compiler/tiled_weights.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/compiler/stored_codes.h"
#include "npu_compiler/compiler/weights_image.h"
#include "npu_core/machine/tiles.h"
#include "numerics/packed.h"

namespace dllm::npu {
namespace {

std::uint64_t bytes_of(const HbmTensor& tensor) {
  return tensor.format.element_bytes(tensor.elements) + tensor.format.scale_bytes(tensor.elements);
}

}  // namespace

std::string tile_order(const MachineConfig& m) {
  return fmt::format("{} blen={} mlen={} vlen={} hlen={} mram={}", mx_format_name(m.weight), m.blen, m.mlen, m.vlen,
                     m.hlen, m.mram_elements);
}

Expected<void> check_tile_machine(const MachineConfig& m) {
  if (m.weight.packed() && m.blen == kTileEdge && m.mlen == kTileEdge) return {};
  return Error{ErrorCode::kUsage,
               fmt::format("the device has {} weights in tiles of {} x {}, files have q4_0 or q8_0 in tiles of 32 x 32",
                           mx_format_name(m.weight), m.blen, m.mlen),
               "--layout", "a phone such as mobile-sm8750"};
}

const WeightPlace* tiled_place(const ModelLayout& layout, WeightId id, const WeightView& view) {
  const WeightPlace* place = layout.find(id, WeightUse::kMatrix);
  if (place == nullptr || layout.find(id, WeightUse::kTable) != nullptr || place->matrix.parts != 1) return nullptr;
  return keeps_codes(view, place->in, layout.machine.weight) ? place : nullptr;
}

TileTensor tile_tensor(const WeightPlace& place) {
  constexpr std::int64_t kTile = std::int64_t{kTileEdge} * kTileEdge;
  return {tile_type(place.tensor.format.element), {kTile, static_cast<std::int64_t>(place.tensor.elements) / kTile}};
}

std::vector<std::byte> to_tiles(const WeightPlace& place, const WeightView& view, const MachineConfig& machine) {
  WeightPlace alone = place;
  alone.tensor.base = 0;
  std::vector<std::byte> bytes(bytes_of(place.tensor));
  write_matrix(alone, view, machine, bytes.data());
  return bytes;
}

std::vector<std::byte> from_tiles(const WeightPlace& place, const WeightView& view, const MachineConfig& machine) {
  const MxFormat& format = place.tensor.format;
  const MatrixShape& s = place.matrix;
  const WeightTiles tiles(machine, format);
  const std::size_t block = packed_block_bytes(format.element);
  std::vector<std::byte> rows(to_size(element_count(view.shape)) / kPackedBlock * block);
  std::byte* to = rows.data();
  for (std::int64_t i = 0; i < place.experts * place.out.width; ++i) {
    const std::int64_t expert = i / place.out.width, n = place.out.lane(i % place.out.width);
    const std::int64_t panel = n / s.panel, lanes = s.panel_lanes(panel);
    const auto row_of = [&](std::int64_t lane) {
      return static_cast<std::uint64_t>(expert * (place.expert_stride / machine.mlen) + panel * s.panel * s.k_tiles +
                                        lane / machine.mlen * lanes + n % s.panel);
    };
    for (std::int64_t column = 0; column < place.in.width; column += kPackedBlock, to += block) {
      std::array<std::uint16_t, kPackedBlock> codes;
      for (std::int64_t j = 0; j < kPackedBlock; ++j) {
        const std::int64_t lane = place.in.lane(column + j), at = lane % machine.mlen;
        const std::byte* from = view.data.data() + tiles.codes_at(row_of(lane)) + at * format.bits() / 8;
        const auto byte = static_cast<std::uint16_t>(*from);
        codes[to_size(j)] = format.bits() == 8 ? byte : static_cast<std::uint16_t>(at % 2 == 0 ? byte & 15 : byte >> 4);
      }
      const std::int64_t lane = place.in.lane(column);
      std::uint16_t scale = 0;
      std::memcpy(&scale, view.data.data() + tiles.scales_at(row_of(lane)) + lane % machine.mlen / kPackedBlock * 2, 2);
      write_packed_block(format.element, codes.data(), scale, to);
    }
  }
  return rows;
}

Expected<void> check_tiles(const ModelLayout& layout, const Weights& weights) {
  for (std::size_t id = 0; id < weights.size(); ++id) {
    if (!tile_element(weights[id].type)) continue;
    const auto weight = static_cast<WeightId>(id);
    const WeightPlace* place = layout.find(weight, WeightUse::kMatrix);
    const bool whole = place != nullptr && tile_element(weights[id].type) == place->tensor.format.element &&
                       weights[id].data.size() == bytes_of(place->tensor);
    if (!whole || layout.find(weight, WeightUse::kTable) != nullptr)
      return Error{ErrorCode::kInvalidFile,
                   fmt::format("weight {} has {} bytes of tiles, the device's matrix {}", id, weights[id].data.size(),
                               place == nullptr ? 0 : bytes_of(place->tensor)),
                   "npu compiler", "convert the model for this device (--layout)"};
  }
  return {};
}

}  // namespace dllm::npu
