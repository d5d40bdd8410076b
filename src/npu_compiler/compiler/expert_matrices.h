#pragma once

#include <algorithm>
#include <array>

#include "npu_compiler/compiler/context.h"

// Matrices of experts in matrix SRAM: a ring of slots (MramPlan), each with gate, up and down of one expert. If not
// even one expert fits, its matrices are streamed: their panels alternate between the two buffers of weights.

namespace dllm::npu {

class ExpertMatrices {
 public:
  enum Matrix : std::size_t { kGate, kUp, kDown, kCount };

  ExpertMatrices(StepContext& context, const op::Experts& o);

  const WeightPlace& place(Matrix matrix) const { return *places_[matrix]; }
  std::int64_t experts() const { return places_[kGate]->experts; }
  std::int64_t rows() const { return rows_; }
  /// Rows of an expert if all are chosen equally often.
  std::int64_t usual_rows() const { return ceil_div(rows_ * used_, experts()); }
  /// Element address of a matrix in slot 0.
  std::uint64_t base(Matrix matrix) const { return bases_[matrix]; }
  std::int64_t slots() const { return std::max<std::int64_t>(1, c_.layout.mram.expert_slots); }
  bool streamed() const { return places_[kGate]->streamed; }
  /// Elements from slot to slot.
  std::int64_t slot_elements() const { return c_.layout.mram.expert_slot_rows * c_.machine.mlen; }
  /// Experts 0 .. n-1 are loaded before routing has ended and counted as chosen. 0 if it is not nearly certain that
  /// every expert will be chosen, or if their slots hold panels of other matrices.
  std::int64_t ahead() const;
  /// Starts the transfer of a matrix of expert number - 1 into the slot at element offset `slot` of the ring. `number`
  /// is overwritten.
  void fetch(Matrix matrix, Gp number, const Gp& slot);
  /// The same with an expert and a slot that are known.
  void fetch(Matrix matrix, std::int64_t expert, std::int64_t slot);
  /// Starts the transfer of a panel of an expert, which is overwritten, into buffer 0 or 1.
  void fetch_panel(Matrix matrix, Gp expert, std::int64_t panel, std::int64_t buffer);
  /// Element address of a buffer.
  std::uint64_t buffer_base(std::int64_t buffer) const { return c_.layout.mram.weight[buffer]; }

 private:
  void transfer(Matrix matrix, const Gp& offset, const Gp& to, std::int64_t outputs);

  StepContext& c_;
  std::int64_t used_ = 0, rows_ = 0;
  std::array<const WeightPlace*, kCount> places_ = {};
  std::array<std::uint64_t, kCount> bases_ = {};
};

}  // namespace dllm::npu
