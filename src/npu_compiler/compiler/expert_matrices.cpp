#include "npu_compiler/compiler/expert_matrices.h"

namespace dllm::npu {

ExpertMatrices::ExpertMatrices(StepContext& context, const op::Experts& o) : c_(context) {
  for (const dllm::Op& any : c_.graph.ops)
    if (const auto* route = std::get_if<op::Route>(&any); route != nullptr && route->out == o.route)
      used_ = route->used, rows_ = c_.value_rows(route->out);
  const std::array weights = {o.gate, o.up, o.down};
  std::uint64_t base = c_.layout.mram.experts;
  for (std::size_t i = 0; i < kCount; ++i) {
    places_[i] = c_.layout.find(weights[i], WeightUse::kMatrix);
    bases_[i] = base;
    base += static_cast<std::uint64_t>(places_[i]->matrix.n * places_[i]->matrix.k_tiles * c_.machine.mlen);
  }
}

std::int64_t ExpertMatrices::ahead() const {
  return experts_ahead({slots(), c_.layout.mram.experts_apart}, experts(), rows_ * used_);
}

void ExpertMatrices::transfer(Matrix matrix, const Gp& offset, const Gp& to, std::int64_t outputs) {
  const WeightPlace& w = place(matrix);
  c_.e.set_address(kWeightAddress, w.tensor.base);
  c_.e.set_scale(w.tensor.scale_offset);
  c_.e.set_csr(Csr::kPrefetchMRows, static_cast<std::uint32_t>(outputs * w.matrix.k_tiles));
  c_.e.transfer(Op::H_PREFETCH_M, to, offset, kWeightAddress, false, 0);
}

void ExpertMatrices::fetch(Matrix matrix, Gp number, const Gp& slot) {
  Emitter& e = c_.e;
  {
    const Gp stride = e.reg(static_cast<std::uint32_t>(place(matrix).expert_stride));
    e.add(number, number, -1);
    e.multiply(number, number, stride);
  }
  const Gp to = e.reg(static_cast<std::uint32_t>(base(matrix)));
  e.add(to, to, slot);
  transfer(matrix, number, to, place(matrix).matrix.n);
}

void ExpertMatrices::fetch(Matrix matrix, std::int64_t expert, std::int64_t slot) {
  const Gp offset = c_.e.reg(static_cast<std::uint32_t>(expert * place(matrix).expert_stride)),
           to = c_.e.reg(static_cast<std::uint32_t>(base(matrix) + static_cast<std::uint64_t>(slot * slot_elements())));
  transfer(matrix, offset, to, place(matrix).matrix.n);
}

void ExpertMatrices::fetch_panel(Matrix matrix, Gp expert, std::int64_t panel, std::int64_t buffer) {
  Emitter& e = c_.e;
  const MatrixShape& shape = place(matrix).matrix;
  {
    const Gp stride = e.reg(static_cast<std::uint32_t>(place(matrix).expert_stride));
    e.multiply(expert, expert, stride);
  }
  e.add(expert, expert, panel * shape.panel * shape.k_tiles * c_.machine.mlen);
  const Gp to = e.reg(static_cast<std::uint32_t>(buffer_base(buffer)));
  transfer(matrix, expert, to, shape.panel_lanes(panel));
}

}  // namespace dllm::npu
