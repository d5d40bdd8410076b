#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/integers.h"
#include "npu_core/machine/config.h"

namespace dllm::npu {

struct Device;

/// What the on-chip memories and the array of a device allow a mapping. A device and its machine give the same.
struct SramShape {
  std::int64_t blen = 0, mlen = 0, vlen = 0, hlen = 0;
  std::int64_t matrix_rows = 0;  ///< of MLEN elements
  std::int64_t vector_rows = 0;  ///< of VLEN lanes
  std::int64_t longest = 0;      ///< products per output that the accumulators hold
  bool ones = false;             ///< HLEN rows of matrix SRAM hold ones, for smoothed values
  std::int64_t ones_rows() const { return ones ? hlen : 0; }
};
SramShape sram_shape(const Device& device);
SramShape sram_shape(const MachineConfig& machine);

/// Outputs of a matrix that are loaded and multiplied at once.
struct PanelChoice {
  std::int64_t n = 0, k_tiles = 0;  ///< the shape: output lanes, tiles of MLEN lanes of the contraction
  std::int64_t lanes = 0;           ///< of a panel at most: a power of two times BLEN
  bool operator==(const PanelChoice&) const = default;
};

/// How a model's matrices, keys and values pass through matrix SRAM. The order of loops is fixed: a panel stays in
/// matrix SRAM while all rows of the step, which stay in vector SRAM, are multiplied by it, and the sums stay in the
/// accumulators over all of K. So a step reads each weight once and no partial sum is stored. What is left to choose is
/// below. Only `chunk_tiles` decides bits (softmax is rescaled from chunk to chunk).
struct Mapping {
  std::int64_t weight_rows = 0;          ///< rows of matrix SRAM of each of the two buffers for panels
  std::int64_t kv_rows = 0;              ///< of each of the two for K and V
  std::int64_t chunk_tiles = 64;         ///< tiles of keys in a chunk of attention, at most
  std::int64_t expert_slots = 8;         ///< experts in the ring, at most
  std::vector<PanelChoice> panels = {};  ///< other matrices have the largest panel that fits a buffer
  bool operator==(const Mapping&) const = default;
};

/// The mapping by rule: three quarters of matrix SRAM for weights, in the largest panels that fit; the rest for K and
/// V.
Mapping rule_mapping(const SramShape& sram);

/// A matrix is stored in HBM as [panel][K / MLEN][rows of the panel][MLEN]: one transfer loads a panel, and a row holds
/// one output's weights, blocked along the contraction. Packed weights have the same order in tiles (machine/tiles.h).
struct MatrixShape {
  std::int64_t n = 0;        ///< output lanes, multiple of BLEN
  std::int64_t k_tiles = 0;  ///< of MLEN lanes
  /// Output lanes per panel: a power of two times BLEN, at most VLEN; an expert's matrix is one panel unless streamed.
  std::int64_t panel = 0;
  /// Outputs that share a row of MLEN lanes: output part * n + r is in row r, from lane part * MLEN / parts on.
  /// Otherwise a contraction that fills at most half of the array's lanes would read as many zeros as weights.
  std::int64_t parts = 1;
  std::int64_t panels() const { return ceil_div(n, panel); }
  std::int64_t panel_lanes(std::int64_t p) const { return p + 1 < panels() ? panel : n - p * panel; }
};

/// A matrix of so many lanes in the mapping's panels. A panel is larger than a buffer if that holds not even BLEN
/// outputs.
MatrixShape matrix_shape(const Mapping& mapping, const SramShape& sram, std::int64_t outputs, std::int64_t inputs);

/// Rows of a block of queries whose scores are in vector SRAM together.
std::int64_t score_rows(const SramShape& sram);
/// Keys of a tile: they share a row of scores with other heads' (HLEN), or fill it (VLEN, of heads longer than HLEN).
std::int64_t key_tile(const SramShape& sram, std::int64_t head_dim);
/// Rows of one of the buffers for K and V that a tile of keys takes, of the two that alternate. `head_dim`: longer than
/// HLEN, or any other.
std::int64_t key_rows(const SramShape& sram, std::int64_t head_dim);
/// Tiles of keys whose scores, K and V are on chip together; 0: not even one. Two blocks' scores may take an eighth of
/// vector SRAM.
std::int64_t chunk_tiles(const Mapping& mapping, const SramShape& sram, std::int64_t head_dim);

/// A ring of slots for the matrices of experts in the buffers for panels.
struct ExpertRing {
  std::int64_t slots = 0;  ///< 0: not even one, panels are streamed
  bool apart = false;      ///< next to two panels of the largest other matrix, which stay
};
/// `slot`, `panel`: rows of matrix SRAM of an expert's matrices and of that panel.
ExpertRing expert_ring(const Mapping& mapping, std::int64_t slot, std::int64_t panel);

/// Outputs of an expert's last matrix that share a row of matrix SRAM, a power of two: a contraction of `inner` lanes
/// that fills at most half of the array's would read as many zeros as weights. `block`: of the formats' scales; the
/// schedule, which does not know it, takes 1. The compiler packs only experts that do not stream.
std::int64_t packed_outputs(const SramShape& sram, std::int64_t inner, std::int64_t outputs, std::int64_t block);
/// Experts 0 .. n - 1 are loaded before routing has ended and counted as chosen. 0 if it is not nearly certain that
/// every expert will be chosen, or if their slots hold panels of other matrices.
std::int64_t experts_ahead(const ExpertRing& ring, std::int64_t experts, std::int64_t choices);
/// Rows of an expert at once, at most. More than two blocks only take room; their weights, and those of the items in
/// flight, are in FP_MEM. 0: not even one block's.
std::int64_t expert_chunk(const SramShape& sram, std::int64_t fp_words, std::int64_t rows);

}  // namespace dllm::npu
