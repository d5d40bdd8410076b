#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/integers.h"
#include "dllm/error.h"
#include "graph/graph.h"
#include "npu_compiler/lowering/lanes.h"
#include "npu_compiler/lowering/mapping.h"
#include "npu_core/machine/config.h"

// Where data are stored: columns of activations in lanes, weights and caches in HBM, buffers in matrix SRAM. The rules
// are part of the numerics (blocks of the MX formats run along lanes), so the reference executor uses the same maps.

namespace dllm::npu {

/// Alignment in bytes of tensors, caches and areas of a step in HBM.
inline constexpr std::uint64_t kHbmAlign = 4096;

/// Lane maps of all values of a graph. Errors: kUnsupported (heads that do not fit the device's HLEN).
Expected<std::vector<LaneMap>> lane_maps(const Graph& graph, const MachineConfig& machine);

/// A tensor in HBM.
struct HbmTensor {
  std::uint64_t base = 0;          ///< byte address of the elements
  std::uint64_t scale_offset = 0;  ///< bytes from base to the scales; packed formats have them in their tiles
  MxFormat format;
  std::uint64_t elements = 0;
};

/// The form in which the program reads a weight. One weight may be needed in two (tied embeddings).
enum class WeightUse : std::uint8_t {
  kMatrix,   ///< panels of output lanes for M_TMM, weight format
  kTable,    ///< one row of lanes per token, in the lanes' format
  kRow,      ///< one row of lanes: biases and gains, in the lanes' format
  kHeadRow,  ///< one vector of VLEN lanes: a head's gain, repeated in every slot, in the lanes' format
  kNumber,   ///< one vector of VLEN lanes: one number, repeated in every lane, in the lanes' format
};

struct WeightPlace {
  WeightId weight = kNoId;
  WeightUse use = WeightUse::kMatrix;
  LaneMap in, out;     ///< of a matrix; `out` of rows and tables
  MatrixShape matrix;  ///< kMatrix
  /// Number of matrices in a stack, in sequence, `expert_stride` elements each.
  std::int64_t experts = 1, expert_stride = 0;
  /// An expert's matrices do not fit into matrix SRAM together: panels alternate between the two buffers of weights.
  bool streamed = false;
  HbmTensor tensor;
};

/// RoPE's factors for every position: rows of VLEN lanes, the pattern of one head repeated. out = x*cos + up(x)*sin_up
/// + down(x)*sin_down, where up/down rotate the lanes of a segment by `distance`; if both rotations are the same
/// (distance is half of a segment) there is one sine.
struct RopePlace : RopeForm {
  op::Rope spec;
  std::int64_t distance = 0;
  HbmTensor tensor;  ///< [position][table][VLEN]
  bool serves(const op::Rope& other) const;
};

/// K and V of one layer in a sequence's cache, each [slab][position][VLEN] in the KV format.
struct KvPlace {
  std::int32_t layer = 0;
  LaneMap map;
  std::int64_t slabs = 0;
  std::uint64_t k_offset = 0, v_offset = 0;  ///< bytes from the cache's base
  std::uint64_t scale_offset = 0;            ///< from each of them
  std::uint64_t factors =
      0;  ///< bytes from the cache's base: KvFactors::rows in the lanes' format, if K or V is smoothed
};
struct KvLayout {
  std::int64_t capacity = 0;  ///< positions, multiple of ModelLayout::key_tile
  std::uint64_t bytes = 0;
  std::vector<KvPlace> layers;
};

/// Matrix SRAM: two buffers for weights, two for K and V.
struct MramPlan {
  std::uint64_t weight[2] = {}, kv[2] = {};   ///< element addresses
  std::int64_t weight_rows = 0, kv_rows = 0;  ///< rows of MLEN of each; a layout with experts moves weight[1] down
  /// A layer of experts uses the weight buffers as one area, without the rows that panels of other matrices take, if
  /// the rest holds two experts (`experts_apart`).
  std::uint64_t experts = 0;  ///< element address of the first slot
  std::int64_t expert_slot_rows = 0, expert_slots = 0;
  bool experts_apart = false;
  /// HLEN rows of ones in the format of V, which add up quantized probabilities; of smoothed values only.
  std::uint64_t ones = 0;
};

/// Everything about a model on a device that does not depend on the step.
struct ModelLayout {
  MachineConfig machine;
  Mapping mapping;
  std::int64_t positions = 0;  ///< of the RoPE tables
  std::vector<LaneMap> values;
  std::vector<WeightPlace> weights;
  std::vector<RopePlace> ropes;
  MramPlan mram;
  /// Positions of the longest layer's tile of keys (npu::key_tile()): caches have whole ones.
  std::int64_t key_tile = 0;
  /// Key tiles of any layer whose scores fit vector SRAM at once; softmax is exact within, online across them.
  std::int64_t chunk_tiles = 1;
  std::uint64_t weight_bytes = 0;               ///< HBM in use from address 0
  std::uint64_t step_base = 0, step_bytes = 0;  ///< HBM for a step's constants and logits

  const WeightPlace* find(WeightId weight, WeightUse use) const;
  std::int64_t slabs(const LaneMap& map) const { return ceil_div(map.used(), machine.vlen); }
};

/// Buffers of the mapping's sizes.
void plan_mram(ModelLayout& layout);
/// Slots for experts after two panels of the largest size, or over them.
void plan_experts(ModelLayout& layout);

/// `present`: by WeightId, which weights the model has. `mapping`: null for the one by rule. Errors: kUsage and
/// kUnsupported, naming what does not fit.
Expected<ModelLayout> make_layout(const Graph& graph, const std::vector<bool>& present, const MachineConfig& machine,
                                  std::int64_t positions, const Mapping* mapping = nullptr);
/// The same for weights that need not fit the device's memory.
Expected<ModelLayout> place_model(const Graph& graph, const std::vector<bool>& present, const MachineConfig& machine,
                                  std::int64_t positions, const Mapping* mapping = nullptr);
/// Errors: kUsage: so many bytes of weights do not fit.
Expected<void> check_weights(const ModelLayout& layout, std::uint64_t bytes);
/// Bytes of the tables of RoPE's factors for that many positions.
std::uint64_t rope_bytes(const ModelLayout& layout, std::int64_t positions);
/// Errors: kUsage.
Expected<KvLayout> kv_layout(const Graph& graph, const ModelLayout& layout, std::int64_t capacity);

}  // namespace dllm::npu
