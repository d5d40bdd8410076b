#pragma once

#include <span>
#include <vector>

#include "npu_compiler/compiler/attention_plan.h"
#include "npu_compiler/compiler/context.h"

namespace dllm::npu {

/// Softmax over a chunk's scores for some rows of a block, in place. The scores of row r and tile t are in VRAM row
/// `scores + t * stride + r`, with HLEN keys for each head of the row.
struct SoftmaxRows {
  std::int64_t scores = 0, stride = 0, tiles = 1;
  std::int64_t sums = 0;  ///< row r's sums go to VRAM row sums + r
  /// Of later chunks, sums are only rescaled, and nothing is added up: the array does that (attention.cpp).
  bool adds = true;
  std::int64_t scratch = 0;    ///< kSoftmaxScratch rows
  std::int64_t count = 0;      ///< rows
  std::vector<KeyMask> masks;  ///< by tile
  /// Over several chunks: running maxima, and from the second chunk on the outputs to be rescaled.
  bool running = false, first_chunk = true;
  std::int64_t maxima = 0, out = 0;
};
inline constexpr std::int64_t kSoftmaxScratch = 2;

void emit_softmax(StepContext& c, const SoftmaxRows& rows);

/// Rows of VLEN lanes that hide keys in tiles of so many, by sequence and pattern; a pattern repeats along the lanes.
/// Errors: no room.
Expected<const std::vector<std::vector<KeyMask>>*> key_masks(StepContext& c, StepContext::TileKey key);

}  // namespace dllm::npu
