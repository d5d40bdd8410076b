#include "npu_compiler/lowering/mapping.h"

#include <algorithm>

#include "base/integers.h"
#include "npu_core/device/device.h"

namespace dllm::npu {

SramShape sram_shape(const Device& device) {
  const ArrayKeys& a = device.array;
  return {.blen = a.blen,
          .mlen = a.mlen,
          .vlen = a.vlen,
          .hlen = a.hlen,
          .matrix_rows = device.sram.matrix_tiles * a.mlen,
          .vector_rows = device.sram.vector_rows,
          .longest = std::int64_t{1} << MachineConfig{}.contraction_bits,
          .ones = device.numerics.smooth_values != "none"};
}

SramShape sram_shape(const MachineConfig& machine) {
  return {.blen = machine.blen,
          .mlen = machine.mlen,
          .vlen = machine.vlen,
          .hlen = machine.hlen,
          .matrix_rows = static_cast<std::int64_t>(machine.mram_elements) / machine.mlen,
          .vector_rows = static_cast<std::int64_t>(machine.vram_elements) / machine.vlen,
          .longest = std::int64_t{1} << machine.contraction_bits,
          .ones = machine.smoothing.values != SmoothingCentre::kNone};
}

Mapping rule_mapping(const SramShape& sram) {
  const std::int64_t unit = std::max(sram.blen, sram.hlen);
  Mapping mapping;
  mapping.weight_rows = sram.matrix_rows * 3 / 8 / unit * unit;
  mapping.kv_rows = (sram.matrix_rows - 2 * mapping.weight_rows - sram.ones_rows()) / 2 / unit * unit;
  return mapping;
}

MatrixShape matrix_shape(const Mapping& mapping, const SramShape& sram, std::int64_t outputs, std::int64_t inputs) {
  MatrixShape shape{.n = round_up(outputs, sram.blen), .k_tiles = ceil_div(inputs, sram.mlen), .panel = sram.vlen};
  for (const PanelChoice& choice : mapping.panels)
    if (choice.n == shape.n && choice.k_tiles == shape.k_tiles) shape.panel = std::min(shape.panel, choice.lanes);
  while (shape.panel > sram.blen && (shape.panel * shape.k_tiles > mapping.weight_rows || shape.panel / 2 >= shape.n))
    shape.panel /= 2;
  return shape;
}

std::int64_t score_rows(const SramShape& sram) { return round_up(std::min<std::int64_t>(128, sram.mlen), sram.blen); }

std::int64_t key_tile(const SramShape& sram, std::int64_t head_dim) {
  return head_dim > sram.hlen ? sram.vlen : sram.hlen;
}

std::int64_t key_rows(const SramShape& sram, std::int64_t head_dim) {
  const bool wide = head_dim > sram.hlen;
  return 2 * (wide ? sram.vlen * (head_dim / sram.mlen) : sram.hlen * (sram.vlen / sram.mlen));
}

std::int64_t chunk_tiles(const Mapping& mapping, const SramShape& sram, std::int64_t head_dim) {
  return std::max<std::int64_t>(
      0, std::min({sram.vector_rows / 16 / score_rows(sram), mapping.kv_rows / key_rows(sram, head_dim),
                   sram.longest / key_tile(sram, head_dim) - 1, mapping.chunk_tiles}));
}

ExpertRing expert_ring(const Mapping& mapping, std::int64_t slot, std::int64_t panel) {
  const std::int64_t all = 2 * mapping.weight_rows, apart = (all - 2 * panel) / slot;
  if (apart >= 2) return {std::min(apart, mapping.expert_slots), true};
  return {std::min(all / slot, mapping.expert_slots), false};
}

std::int64_t packed_outputs(const SramShape& sram, std::int64_t inner, std::int64_t outputs, std::int64_t block) {
  std::int64_t parts = 1;
  while (inner <= sram.mlen / (2 * parts) && sram.mlen / (2 * parts) % block == 0 && 2 * parts * sram.blen <= outputs &&
         sram.vlen % (2 * parts * sram.blen) == 0)
    parts *= 2;
  return parts;
}

std::int64_t experts_ahead(const ExpertRing& ring, std::int64_t experts, std::int64_t choices) {
  // With a uniform choice an expert is left out with a probability of e^-16.
  constexpr std::int64_t kCertainChoices = 16;
  return ring.apart && choices >= kCertainChoices * experts ? std::min(std::max<std::int64_t>(1, ring.slots), experts)
                                                            : 0;
}

std::int64_t expert_chunk(const SramShape& sram, std::int64_t fp_words, std::int64_t rows) {
  constexpr std::int64_t kItems = 3, kBlocks = 2;
  return std::min({round_up(rows, sram.blen), fp_words / kItems / sram.blen * sram.blen, kBlocks * sram.blen});
}

}  // namespace dllm::npu
