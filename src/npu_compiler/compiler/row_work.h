#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "npu_compiler/compiler/emitter.h"
#include "npu_compiler/compiler/step.h"

// Vector work in the shadow of products. The array needs the front end for a few instructions per tile and one port of
// vector SRAM; between the column blocks of a product there is room for slices of work on complete rows:
//
//   - a stream: rows that were complete before the product began (RoPE of q while k is multiplied);
//   - a tail: rows of the product itself, block by block. Block b is complete after its last panel, and is worked on
//     while block b + 1 is multiplied; the last block's rows are carried into the first block of the next product,
//     which reads them last.
//
// A slice's position is a word of INT_MEM, so that slices are the same in every iteration of a loop.

namespace dllm::npu {

class StepContext;

/// Rows of VRAM that an operator holds while it is lowered.
struct Buffer {
  std::int64_t row = 0, rows = 0;
};

struct RowWork {
  std::int64_t rows = 0;         ///< not yet emitted
  std::int64_t port_cycles = 1;  ///< accesses of vector SRAM per row
  std::uint32_t word = 0;        ///< INT_MEM: element offset of the next row, row times VLEN
  /// Emits the work on `count` rows from that offset on.
  std::function<void(Gp offset, std::int64_t count)> emit;
  std::vector<Buffer> buffers = {};  ///< released when all rows are done
  std::vector<ValueId> holds = {};   ///< values whose buffers it reads, kept alive until then
  std::function<void()> after = {};  ///< emitted when all rows are done
};

/// The next `count` rows. `count` is used in a loop's body, so the caller counts.
void emit_rows(StepContext& c, const RowWork& work, std::int64_t count);

/// h = a + b in place of one of them, and norm(h): what follows a product at the end of half a layer.
struct ResidualRows {
  ValuePlace a, b, h;
  const op::RmsNorm* norm = nullptr;  ///< of h; null: the sum only
  ValuePlace out;                     ///< of the norm
  std::int64_t width = 0;             ///< of the norm
  Buffer gain;
};
RowWork residual_work(StepContext& c, const ResidualRows& rows, std::uint32_t word);

/// RoPE in place with one rotation (RopePlace::tables == 2). `tables`: cosines of all rows, then sines.
RowWork rope_work(StepContext& c, const ValuePlace& x, std::int64_t distance, const Buffer& tables, std::uint32_t word);

/// SwiGLU of one slab: gate <- silu(gate) up.
RowWork swiglu_work(StepContext& c, std::int64_t gate_row, std::int64_t up_row, std::int64_t rows, std::uint32_t word);

}  // namespace dllm::npu
