#include "npu/accuracy/matrix.h"

#include <algorithm>

#include "base/parallel.h"
#include "npu/accuracy/vector_unit.h"
#include "npu/compiler/stored_codes.h"
#include "numerics/tensor_type.h"

namespace dllm::npu::accuracy {

std::vector<float> weight_row(const WeightView& weight, std::int64_t row) {
  const Codec& format = codec(weight.type);
  std::vector<float> values(static_cast<std::size_t>(weight.shape[0]));
  format.dequantize(weight.data.data() + row * format.row_bytes(weight.shape[0]), values.data(), weight.shape[0]);
  return values;
}

Contraction::Contraction(const LaneMap& in, const ProductFormats& formats) {
  // Sums in float32 are computed term by term, so lanes without a column can be left out individually.
  if (formats.rule.integers()) group_ = std::min({formats.a.block(), formats.w.block(), formats.mlen});
  for (std::int64_t column = 0; column < in.width; ++column) {
    const std::int64_t lane = in.lane(column) / group_ * group_;
    if (lanes_.empty() || lanes_.back() != lane) lanes_.push_back(lane);
  }
  // Interleaved pairs are stored as halves, so columns are not in the order of lanes.
  std::ranges::sort(lanes_);
  lanes_.erase(std::unique(lanes_.begin(), lanes_.end()), lanes_.end());
  for (std::size_t g = 0; g < lanes_.size(); ++g)
    if (g + 1 == lanes_.size() || lanes_[g + 1] / formats.mlen != lanes_[g] / formats.mlen)
      ends_.push_back(static_cast<std::int32_t>(g + 1));
}

void Contraction::gather(const Operand& row, int block, float* terms, std::int16_t* exponents) const {
  for (std::size_t g = 0; g < lanes_.size(); ++g) {
    std::copy_n(row.lanes.data() + lanes_[g], group_, terms + static_cast<std::int64_t>(g) * group_);
    if (!row.exponents.empty()) exponents[g] = row.exponents[static_cast<std::size_t>(lanes_[g] / block)];
  }
}

void OperandRows::reset(std::int64_t count, const Contraction& contraction) {
  rows = count;
  terms = contraction.terms();
  groups = contraction.groups();
  a.resize(static_cast<std::size_t>(rows * terms));
  exponents.resize(static_cast<std::size_t>(rows * groups));
}

void OperandRows::copy_row(const OperandRows& from, std::int64_t source, std::int64_t target) {
  std::copy_n(from.a.data() + source * terms, terms, a.data() + target * terms);
  std::copy_n(from.exponents.data() + source * groups, groups, exponents.data() + target * groups);
}

Matrix Matrix::pack(const WeightView& weight, std::int64_t first, std::int64_t outputs, const LaneMap& in,
                    const ProductFormats& formats, ThreadPool& pool) {
  Matrix m;
  m.outputs_ = outputs;
  m.rule_ = formats.rule;
  m.contraction_ = Contraction(in, formats);
  const auto terms = static_cast<std::size_t>(m.panels() * m.contraction_.terms() * kPanel);
  (formats.rule.kind == WindowRule::Kind::kNarrow ? m.narrow_.resize(terms) : m.wide_.resize(terms));
  m.exponents_.assign(static_cast<std::size_t>(m.panels() * m.contraction_.groups() * kPanel), kZeroExponent);
  const bool plain = formats.w.ggml() && !formats.w.packed();
  const bool stored = plain ? *formats.w.ggml() == weight.type : keeps_codes(weight, in, formats.w.machine_format());
  parallel(pool, m.panels(),
           [&](std::int64_t panel, int) { m.pack_panel(weight, first + panel * kPanel, panel, in, formats, stored); });
  return m;
}

void Matrix::pack_panel(const WeightView& weight, std::int64_t first, std::int64_t panel, const LaneMap& in,
                        const ProductFormats& formats, bool stored) {
  const std::int64_t count = std::min(kPanel, outputs_ - panel * kPanel), terms = contraction_.terms(),
                     groups = contraction_.groups();
  std::vector<float> laid, gathered(static_cast<std::size_t>(terms));
  std::vector<std::int16_t> exponents(static_cast<std::size_t>(groups), kZeroExponent);
  Operand row;
  LaneCodes codes;
  for (std::int64_t n = 0; n < count; ++n) {
    if (stored && formats.rule.integers()) {
      codes.reset(formats.w.machine_format(), row_lanes(in));
      lay_codes(weight, first + n, in, formats.w.machine_format(), 0, codes);
      lay_integers(formats.w.machine_format(), codes.codes, codes.scales, row);
    } else {
      const std::vector<float> values = weight_row(weight, first + n);
      laid.assign(static_cast<std::size_t>(row_lanes(in)), 0.0f);
      for (std::size_t k = 0; k < values.size(); ++k)
        laid[static_cast<std::size_t>(in.lane(static_cast<std::int64_t>(k)))] = values[k];
      if (stored && formats.w.packed()) round_lanes(VectorPrecision::kF16, laid);
      if (stored)
        row.lanes = laid;
      else
        quantize(formats.w, formats.rule.integers(), laid, row);
    }
    contraction_.gather(row, formats.w.block(), gathered.data(), exponents.data());
    for (std::int64_t k = 0; k < terms; ++k) {
      const auto at = static_cast<std::size_t>((panel * terms + k) * kPanel + n);
      const float value = gathered[static_cast<std::size_t>(k)];
      if (rule_.kind == WindowRule::Kind::kNarrow)
        narrow_[at] = static_cast<std::int16_t>(value);
      else
        wide_[at] = value;
    }
    if (!rule_.integers()) continue;
    for (std::int64_t g = 0; g < groups; ++g)
      exponents_[static_cast<std::size_t>((panel * groups + g) * kPanel + n)] = exponents[static_cast<std::size_t>(g)];
  }
}

void Matrix::multiply(const OperandRows& x, std::int64_t panel, double* sums) const {
  const std::int64_t first = panel * contraction_.terms() * kPanel;
  const bool narrow = rule_.kind == WindowRule::Kind::kNarrow;
  add_windows(rule_,
              {.rows = x.rows,
               .a = x.a.data(),
               .a_stride = x.terms,
               .a_exponents = x.exponents.data(),
               .a_exponents_stride = x.groups,
               .narrow = narrow ? narrow_.data() + first : nullptr,
               .wide = narrow ? nullptr : wide_.data() + first,
               .w_exponents = exponents_.data() + panel * contraction_.groups() * kPanel,
               .group = contraction_.group(),
               .ends = contraction_.ends().data(),
               .instructions = static_cast<std::int64_t>(contraction_.ends().size())},
              sums);
}

}  // namespace dllm::npu::accuracy
