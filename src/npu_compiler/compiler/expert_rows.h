#pragma once

#include "npu_compiler/compiler/expert_matrices.h"

// Rows of a layer of experts: gathered into blocks, activated, and added back to the rows that they came from.

namespace dllm::npu {

/// Words of ExpertWords::state, of the three items in flight. No register is kept between the parts of an item, because
/// products use all of them.
enum ExpertState : std::uint32_t {
  kCursor,  ///< word of the next expert in the list of the chosen ones
  // The item whose gate and up are multiplied.
  kStart,    ///< its first node
  kRest,     ///< first node after it of the same expert, 0: none
  kCount,    ///< gathered rows
  kBlocks,   ///< of BLEN gathered rows
  kLast,     ///< rows of the last block
  kWeights,  ///< FP_MEM word of its first weight
  kInner,    ///< element offset of its half of the inner rows
  kSlot,     ///< element offset of its matrices in the ring
  kNumber,   ///< of the expert
  kNext,     ///< number plus one of the expert whose matrices replace these, 0: none
  // The item before: SwiGLU and down.
  kPreviousStart,
  kPreviousCount,
  kPreviousBlocks,
  kPreviousLast,
  kPreviousWeights,
  kPreviousInner,
  kPreviousSlot,
  kPreviousNumber,
  kPreviousNext,
  kActive,  ///< minus its rows without SwiGLU, rounded up to even: counting up needs no register for the constant
  kGate,    ///< address of the next of them
  // The one before that: results being added to their rows.
  kNode,        ///< of the next row
  kLeft,        ///< minus the rows left
  kFrom,        ///< address of the next row's result
  kWeight,      ///< FP_MEM word of its weight
  kOldWeights,  ///< of its first weight
  kLanes,       ///< elements from a row's first weights to those of the expert's slab, if they fill several
};
static_assert(kLanes < kExpertStateWords);

/// Access to these words.
class ExpertWordAccess {
 public:
  explicit ExpertWordAccess(StepContext& context) : c_(context), e_(context.e) {}
  std::uint32_t word(ExpertState state) const { return c_.expert_words.state + state; }
  Gp get(ExpertState state);
  void put(ExpertState state, const Gp& value) { e_.store_int(value, Gp(), word(state)); }
  void put(ExpertState state, std::int64_t value);
  void put_minus(ExpertState state, const Gp& value);
  void move(ExpertState to, ExpertState from);
  void swap(ExpertState a, ExpertState b);

 private:
  StepContext& c_;
  Emitter& e_;
};

class ExpertRows {
 public:
  ExpertRows(StepContext& context, const op::Experts& o, const ExpertMatrices& matrices);

  /// Room for a chunk of rows: an expert's further rows are processed in further chunks, while its matrices stay.
  Expected<void> place_buffers(const ValuePlace& out);
  void release_buffers();
  /// Zeroes the sums, and lanes without a column in the input of `down`.
  void prepare();
  void initial_state();

  /// A row with 1 in the lane of the expert that begins.
  void select(const Gp& expert);
  /// Copies the item's rows into blocks, and their weights into FP_MEM. An expert that counts as chosen may have none.
  void gather();
  void begin_activation();
  /// activation(gate) * up for up to `most` of the previous item's rows in place of gate's, and in the lanes where
  /// further parts of `down` have their weights. Two rows at a time; with an odd number, one extra row is processed in
  /// vain.
  void activate(std::int64_t most);
  void begin_scatter();
  /// out[row] += weight * y for up to `most` rows, in list order.
  void scatter(std::int64_t most);

  std::int64_t chunk() const { return chunk_; }
  std::int64_t x_row() const { return x_rows_.row; }
  std::int64_t y_row() const { return y_rows_.row; }
  // Rows of one half of the inner rows: gate's, up's, and copies with shifted lanes for parts of down beyond the first.
  std::int64_t gate_row() const { return inner_.row; }
  std::int64_t up_row() const { return gate_row() + inner_slabs() * chunk_; }
  std::int64_t moved_row(std::int64_t part) const { return up_row() + (inner_slabs() + part - 1) * chunk_; }

 private:
  const MatrixShape& shape(ExpertMatrices::Matrix matrix) const { return matrices_.place(matrix).matrix; }
  std::int64_t inner_slabs() const { return ceil_div(matrices_.place(ExpertMatrices::kGate).out.width, c_.vlen()); }
  std::int64_t parts() const { return shape(ExpertMatrices::kDown).parts; }
  std::int64_t half_rows() const { return (2 * inner_slabs() + parts() - 1) * chunk_; }
  /// Distance in VRAM from a row's keys to its row of a value; lists contain the addresses of keys.
  std::uint32_t from_keys(const ValuePlace& value) const { return c_.address(value.row) - c_.expert_words.first_row; }
  Gp shifted_lanes(std::int64_t part);
  void copy_part(const Gp& row, const Gp& to, std::int64_t part);
  void gather_rows(const Gp& node);
  void round_up_to_even(const Gp& count, const Gp& t);
  struct Row {
    Gp gate, up, t;
  };
  void gate_pair(const Row (&rows)[2]);

  // Rows of intermediate results.
  static constexpr std::int64_t kExpertLane = 0, kProduct = 1, kActivation = 2, kScratch = 4;
  // f registers; swiglu_constants() sets kOne, initial_state() the two of GELU.
  static constexpr std::uint32_t kOne = 7, kFactor = 2, kForm0 = 5, kForm1 = 6;

  StepContext& c_;
  Emitter& e_;
  const MachineConfig& m_;
  const ExpertMatrices& matrices_;
  ExpertWordAccess words_;
  const bool gelu_;  ///< the tanh form in place of SiLU
  ValuePlace x_, w_, out_;
  std::int64_t chunk_ = 0;  ///< rows at once
  Buffer x_rows_, y_rows_;
  Buffer inner_;  ///< two halves: the current item's and the previous one's
  Buffer scratch_, lane_;
};

}  // namespace dllm::npu
