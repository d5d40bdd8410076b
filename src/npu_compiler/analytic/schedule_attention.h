#pragma once

#include <algorithm>
#include <cstdint>

#include "graph/graph.h"
#include "npu_core/device/array_keys.h"

namespace dllm::npu {

struct Device;

/// One sequence's share of an attention operator in a step.
struct AttentionLoad {
  std::int64_t rows = 0, keys = 0;
  double query_slabs = 0;        ///< VLEN lanes each
  std::int64_t chunk_tiles = 0;  ///< tiles of keys whose scores are in vector SRAM at once
};
struct AttentionWork {
  double cycles = 0, unit_cycles = 0;   ///< of the sequence; of one slab of queries (or one head longer than HLEN)
  double smoothing = 0;                 ///< cycles before: centres, factors, and the rows they apply to
  double array = 0, accesses = 0;       ///< cycles of tiles; accesses of vector SRAM
  double key_lanes = 0, key_loads = 1;  ///< K's elements with padding; how often they are loaded
  double jobs = 1;                      ///< pieces that fit a buffer of matrix SRAM
};

/// A layer's new keys and values on their way to memory. Keys that were stored in a product's shadow have kept the
/// front end only while their transfers, one for each slab and sequence, did not fit its queue. Others are stored
/// before attention, which waits for them.
struct KvStores {
  double keys = 0, values = 0;  ///< cycles of memory
  double key_slabs = 0;         ///< of a row
  bool streamed = false;        ///< keys, in a product's shadow

  /// `lead`: cycles of the array's work that was queued before.
  double front_end_wait(double queue, double sequences, double lead) const {
    if (!streamed) return 0;
    return std::max(0.0, keys * std::max(0.0, 1 - queue / (sequences * key_slabs)) - lead);
  }
};

/// Blocks of a sequence's rows: the scores of one are multiplied during the softmax of the previous one.
AttentionWork attention_work(const Device& device, const op::Attention& o, const AttentionLoad& load);

/// Cycles from the array's last operand to a block's results in vector SRAM: skew, adder tree, write-out.
double result_delay(const ArrayKeys& array);
/// How far the array is behind the front end at the end of a product whose last column blocks fill the queue: a tile
/// leaves it when it starts, a write-out when the array has drained.
double queue_lead(const ArrayKeys& array, double queue, double k_tiles);

}  // namespace dllm::npu
