#include "npu_backend/accuracy/matrix.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "base/parallel.h"
#include "base/to_size.h"
#include "npu_backend/accuracy/vector_unit.h"
#include "npu_compiler/compiler/stored_codes.h"
#include "numerics/half.h"
#include "numerics/tensor_type.h"

namespace dllm::npu::accuracy {

std::vector<float> weight_row(const WeightView& weight, std::int64_t row) {
  const Codec& format = codec(weight.type);
  std::vector<float> values(to_size(weight.shape[0]));
  format.dequantize(weight.data.data() + row * format.row_bytes(weight.shape[0]), values.data(), weight.shape[0]);
  return values;
}

Contraction::Contraction(const LaneMap& in, const ProductFormats& formats) {
  // Sums in float32 are computed term by term, so lanes without a column can be left out individually.
  if (formats.rule.integers()) group_ = std::min({formats.a.block(), formats.w.block(), formats.mlen});
  const auto is_byte = [](const OperandFormat& format) {
    return format.fixed() && mx_element(format.machine_format().element).magnitude_bits <= 7;
  };
  bytes_ =
      formats.rule.kind == WindowRule::Kind::kNarrow && group_ % 4 == 0 && is_byte(formats.a) && is_byte(formats.w);
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
  for (const std::int64_t lane : lanes_) {
    if (runs_.empty() || runs_.back().lane + runs_.back().terms != lane) runs_.push_back({lane, 0});
    runs_.back().terms += group_;
  }
}

void Contraction::gather(const Operand& row, int block, float* terms, std::int16_t* exponents) const {
  for (const Run& run : runs_) terms = std::copy_n(row.lanes.data() + run.lane, run.terms, terms);
  const int shift = std::countr_zero(static_cast<unsigned>(block));
  for (std::size_t g = 0; g < lanes_.size() && !row.exponents.empty(); ++g)
    exponents[g] = row.exponents[to_size(lanes_[g] >> shift)];
}

void OperandRows::reset(std::int64_t count, const Contraction& contraction) {
  rows = count;
  terms = contraction.terms();
  groups = contraction.groups();
  a.resize(to_size(rows * terms));
  exponents.resize(to_size(rows * groups));
  bytes.resize(contraction.bytes() ? a.size() : 0);
}

void OperandRows::lay_bytes(std::int64_t row) {
  if (bytes.empty()) return;
  const float* const from = a.data() + row * terms;
  std::uint8_t* const to = bytes.data() + row * terms;
  for (std::int64_t i = 0; i < terms; ++i) to[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(from[i]) + 128);
}

void OperandRows::copy_row(const OperandRows& from, std::int64_t source, std::int64_t target) {
  std::copy_n(from.a.data() + source * terms, terms, a.data() + target * terms);
  std::copy_n(from.exponents.data() + source * groups, groups, exponents.data() + target * groups);
  lay_bytes(target);
}

Matrix Matrix::pack(const WeightView& weight, std::int64_t first, std::int64_t outputs, const LaneMap& in,
                    const ProductFormats& formats, ThreadPool& pool) {
  Matrix m;
  m.outputs_ = outputs;
  m.rule_ = formats.rule;
  m.contraction_ = Contraction(in, formats);
  const bool plain = formats.w.ggml() && !formats.w.packed();
  const bool stored = plain ? *formats.w.ggml() == weight.type : keeps_codes(weight, in, formats.w.machine_format());
  const Source source{weight, first, in, formats, stored};
  if (formats.rule.kind == WindowRule::Kind::kNarrow) {
    m.storage_ = Storage::kNarrow;
  } else if (formats.rule.kind == WindowRule::Kind::kFloat && formats.w.ggml() != TensorType::kF32) {
    m.storage_ = formats.w.packed() || formats.w.ggml() == TensorType::kF16 ? Storage::kF16 : Storage::kBF16;
    if (m.pack_panels(source, pool)) return m;
    m.storage_ = Storage::kF32;
  }
  m.pack_panels(source, pool);
  return m;
}

bool Matrix::pack_panels(const Source& source, ThreadPool& pool) {
  const auto terms = to_size(panels() * contraction_.terms() * kPanel);
  const bool half = storage_ == Storage::kF16 || storage_ == Storage::kBF16;
  narrow_.resize(storage_ == Storage::kNarrow ? terms : 0);
  wide_.resize(storage_ == Storage::kF32 ? terms : 0);
  half_ = std::vector<std::uint16_t>(half ? terms : 0);
  if (rule_.integers()) exponents_.assign(to_size(panels() * contraction_.groups() * kPanel), kZeroExponent);
  if (contraction_.bytes()) {
    bytes_.resize(terms);
    offsets_.resize(exponents_.size());
  }
  std::atomic<bool> exact = true;
  parallel(pool, panels(), [&](std::int64_t panel, int) {
    if (!pack_panel(source, panel)) exact = false;
  });
  return exact;
}

bool Matrix::put(std::size_t at, float value) {
  switch (storage_) {
    case Storage::kNarrow:
      narrow_[at] = static_cast<std::int16_t>(value);
      return true;
    case Storage::kF32:
      wide_[at] = value;
      return true;
    case Storage::kF16:
      half_[at] = f32_to_f16(value);
      return std::bit_cast<std::uint32_t>(f16_to_f32(half_[at])) == std::bit_cast<std::uint32_t>(value);
    case Storage::kBF16:
      half_[at] = f32_to_bf16(value);
      return std::bit_cast<std::uint32_t>(bf16_to_f32(half_[at])) == std::bit_cast<std::uint32_t>(value);
  }
  return false;
}

bool Matrix::pack_panel(const Source& source, std::int64_t panel) {
  const auto& [weight, first_row, in, formats, stored] = source;
  const std::int64_t first = first_row + panel * kPanel;
  const std::int64_t count = std::min(kPanel, outputs_ - panel * kPanel), terms = contraction_.terms(),
                     groups = contraction_.groups();
  std::vector<float> laid, gathered(to_size(terms));
  std::vector<std::int16_t> exponents(to_size(groups), kZeroExponent);
  Operand row;
  LaneCodes codes;
  bool exact = true;
  for (std::int64_t n = 0; n < count; ++n) {
    if (stored && formats.rule.integers()) {
      codes.reset(formats.w.machine_format(), row_lanes(in));
      lay_codes(weight, first + n, in, formats.w.machine_format(), 0, codes);
      lay_integers(formats.w.machine_format(), codes.codes, codes.scales, row);
    } else {
      const std::vector<float> values = weight_row(weight, first + n);
      laid.assign(to_size(row_lanes(in)), 0.0f);
      for (std::size_t k = 0; k < values.size(); ++k) laid[to_size(in.lane(static_cast<std::int64_t>(k)))] = values[k];
      if (stored && formats.w.packed()) round_lanes(VectorPrecision::kF16, laid);
      if (stored)
        row.lanes = laid;
      else
        quantize(formats.w, formats.rule.integers(), laid, row);
    }
    contraction_.gather(row, formats.w.block(), gathered.data(), exponents.data());
    for (std::int64_t k = 0; k < terms; ++k) {
      const auto at = to_size((panel * terms + k) * kPanel + n);
      exact = put(at, gathered[to_size(k)]) && exact;
    }
    if (!rule_.integers()) continue;
    for (std::int64_t g = 0; g < groups; ++g)
      exponents_[to_size((panel * groups + g) * kPanel + n)] = exponents[to_size(g)];
  }
  lay_bytes(panel);
  return exact;
}

void Matrix::lay_bytes(std::int64_t panel) {
  const std::int64_t terms = contraction_.terms(), groups = contraction_.groups(), group = contraction_.group();
  for (std::int64_t k = 0; k < terms && contraction_.bytes(); ++k)
    for (std::int64_t n = 0; n < kPanel; ++n) {
      const std::int16_t element = narrow_[to_size((panel * terms + k) * kPanel + n)];
      bytes_[to_size(panel * terms * kPanel + (k / 4 * kPanel + n) * 4 + k % 4)] = static_cast<std::int8_t>(element);
      offsets_[to_size((panel * groups + k / group) * kPanel + n)] -= 128 * element;
    }
}

const float* Matrix::floats(std::int64_t panel) const {
  const std::int64_t terms = contraction_.terms(), first = panel * terms * kPanel;
  if (storage_ == Storage::kF32) return wide_.data() + first;
  thread_local std::vector<float> values;
  values.resize(to_size(terms * kPanel));
  widen(half_.data() + first, storage_ == Storage::kBF16, terms, values.data());
  return values.data();
}

void Matrix::multiply(const OperandRows& x, std::int64_t panel, double* sums) const {
  const bool narrow = storage_ == Storage::kNarrow;
  add_windows(rule_,
              {.rows = x.rows,
               .a = x.a.data(),
               .a_stride = x.terms,
               .a_exponents = x.exponents.data(),
               .a_exponents_stride = x.groups,
               .narrow = narrow ? narrow_.data() + panel * contraction_.terms() * kPanel : nullptr,
               .wide = narrow ? nullptr : floats(panel),
               .w_exponents = rule_.integers() ? exponents_.data() + panel * contraction_.groups() * kPanel : nullptr,
               .group = contraction_.group(),
               .a_bytes = x.bytes.empty() ? nullptr : x.bytes.data(),
               .bytes = bytes_.empty() ? nullptr : bytes_.data() + panel * contraction_.terms() * kPanel,
               .offsets = bytes_.empty() ? nullptr : offsets_.data() + panel * contraction_.groups() * kPanel,
               .ends = contraction_.ends().data(),
               .instructions = static_cast<std::int64_t>(contraction_.ends().size())},
              sums);
}

}  // namespace dllm::npu::accuracy
