#include "npu_core/machine/matrix_unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/to_size.h"
#include "npu_core/machine/matrix_kernels.h"
#include "npu_core/machine/matrix_operands.h"
#include "npu_core/machine/semantics.h"

namespace dllm::npu {
namespace {

bool fail(Trap& trap, std::string what, std::string hint = "") {
  trap = {std::move(what), std::move(hint)};
  return false;
}

/// The common format of all rows of the range.
std::optional<MxFormat> loaded_format(const MachineState& state, const MemoryRange& range, Trap& trap) {
  const auto mlen = static_cast<std::uint64_t>(state.config.mlen);
  std::uint32_t format = 0;
  for (std::uint32_t row = 0; row < range.rows; ++row) {
    const std::uint64_t index = (range.base + row * range.row_stride) / mlen;
    const std::uint32_t here = state.mram.row_format[index];
    if (here == 0) {
      fail(trap, fmt::format("MRAM row {} (address {}) was never loaded", index, index * mlen),
           fmt::format("H_PREFETCH_M moves prefetch_m_rows = {} rows", state.control(Csr::kPrefetchMRows)));
      return std::nullopt;
    }
    if (row > 0 && here != format) {
      fail(trap, fmt::format("MRAM row {} holds {}, the rows before it {}", index,
                             mx_format_name(*mx_format_from_number(here - 1)),
                             mx_format_name(*mx_format_from_number(format - 1))));
      return std::nullopt;
    }
    format = here;
  }
  return mx_format_from_number(format - 1);
}

/// One accumulation: `blocks` products of equal shape, one per head.
struct Shape {
  Accumulator* accumulator;
  MemoryRange vector, matrix;
  bool transposed = false;
  std::uint32_t heads = 1;  ///< outputs [heads][rows][n]
  std::uint32_t group = 1;  ///< heads per matrix slice
  int k = 0, n = 0;
};

class Product {
 public:
  Product(MachineState& state, const Shape& shape, const MxFormat& format)
      : state_(state), shape_(shape), format_(format), input_format_(state.format(Csr::kFormatMatrixInput)) {}

  bool run(Trap& trap) {
    const auto window = matrix_window(input_format_, format_, state_.config.contraction_bits);
    Accumulator& acc = *shape_.accumulator;
    const int scale_shift = window ? -input_format_.fraction() - format_.fraction() : 0;
    if (!acc.open(window ? Accumulator::Mode::kFixed : Accumulator::Mode::kFloat, shape_.heads, shape_.vector.rows,
                  static_cast<std::uint32_t>(shape_.n), window ? window->guard : 0, scale_shift))
      return fail(trap,
                  fmt::format("the accumulator holds a partial sum of another shape or of other formats than {} x {}",
                              mx_format_name(input_format_), mx_format_name(format_)),
                  "write it out first");
    acc.terms += static_cast<std::uint64_t>(shape_.k);
    if (window && acc.terms >> state_.config.contraction_bits != 0)
      return fail(trap,
                  fmt::format("{} products per output do not fit into the accumulator's window, which ends below 2^{}",
                              acc.terms, state_.config.contraction_bits),
                  "write out partial sums, or raise contraction_bits");
    const InputRows input = read_input(state_, shape_.vector, !window);
    for (std::uint32_t head = 0; head < shape_.heads; ++head)
      if (window)
        add_fixed(input, head, window->narrow);
      else
        add_float(input, head);
    return true;
  }

 private:
  MatrixSlice slice(std::uint32_t head) const {
    // From one slice to the next: HLEN lanes (transposed), bmm_cols lanes (heads next to each other) or HLEN rows.
    const std::uint64_t index = head / shape_.group, k = static_cast<std::uint64_t>(shape_.k),
                        n = static_cast<std::uint64_t>(shape_.n);
    const std::uint64_t step = shape_.transposed ? k
                               : state_.control(Csr::kBmmLayout) == 1
                                   ? n
                                   : k * static_cast<std::uint64_t>(state_.config.mlen);
    return {shape_.matrix.base + index * step, shape_.transposed, shape_.k, shape_.n};
  }
  std::size_t first_output(std::uint32_t head) const {
    return std::size_t{head} * shape_.vector.rows * to_size(shape_.n);
  }
  std::uint32_t lane(std::uint32_t head) const { return head * static_cast<std::uint32_t>(shape_.k); }

  void add_fixed(const InputRows& input, std::uint32_t head, bool narrow) {
    if (head % shape_.group == 0) read_slice(state_, slice(head), format_, input_format_.block, product_);
    product_.narrow = narrow ? 1 : 0;
    select_lanes(input, lane(head), product_);
    add_fixed_product(product_, *shape_.accumulator, first_output(head), to_size(shape_.n));
  }

  void add_float(const InputRows& input, std::uint32_t head) {
    if (head % shape_.group == 0) real_ = read_slice_f32(state_, slice(head), format_);
    std::vector<float> a(std::size_t{input.rows} * to_size(shape_.k));
    for (std::size_t row = 0; row < input.rows; ++row)
      std::copy_n(input.real.data() + row * input.lanes + lane(head), shape_.k, a.data() + row * to_size(shape_.k));
    accumulate_f32(static_cast<int>(input.rows), shape_.n, shape_.k, a.data(), real_.data(),
                   shape_.accumulator->sum.data() + first_output(head), shape_.n);
  }

  MachineState& state_;
  const Shape& shape_;
  MxFormat format_, input_format_;
  FixedProduct product_;
  std::vector<float> real_;
};

/// The operands of a product: BLEN rows by BLEN columns of a tile, one row by BLEN columns, or the same per head.
enum class Form : std::uint8_t { kTile, kVector, kHeads, kHeadVectors };

template <Form form>
Accumulator& accumulator(MachineState& state) {
  if constexpr (form == Form::kTile) return state.acc_mm;
  if constexpr (form == Form::kVector) return state.acc_mv;
  if constexpr (form == Form::kHeads) return state.acc_bmm;
  return state.acc_bmv;
}

template <Form form, bool transposed>
bool accumulate_product(MachineState& state, const Instruction&, const ResolvedAccesses& accesses, Trap& trap) {
  constexpr bool kHeads = form == Form::kHeads || form == Form::kHeadVectors;
  const bool matrix_first = accesses[0].space == Space::kMram;  // in the order of the table entry
  Shape shape;
  shape.matrix = accesses[matrix_first ? 0 : 1];
  shape.vector = accesses[matrix_first ? 1 : 0];
  shape.transposed = transposed;
  shape.accumulator = &accumulator<form>(state);
  shape.k = kHeads ? state.config.hlen : state.config.mlen;
  shape.n = kHeads ? static_cast<int>(state.control(Csr::kBmmCols)) : state.config.blen;
  if (kHeads) {
    shape.heads = static_cast<std::uint32_t>(state.config.heads());
    shape.group = state.control(Csr::kBmmGroup);
  }
  const auto format = loaded_format(state, shape.matrix, trap);
  return format && Product(state, shape, *format).run(trap);
}

void write_out(MachineState& state, Accumulator& acc, const MemoryRange& target, bool scaled) {
  const float scale = std::bit_cast<float>(state.control(Csr::kBmmScale));
  const LaneFormat lanes = state.config.lanes;
  std::size_t i = 0;
  for (std::uint32_t group = 0; group < target.groups; ++group)
    for (std::uint32_t row = 0; row < target.rows; ++row) {
      Bf16* out = state.vram.data() + target.base + group * target.group_stride + row * target.row_stride;
      for (std::uint32_t x = 0; x < target.length; ++x, ++i)
        out[x] = scaled ? result_to_lane(lanes, acc.f32(i) * scale) : acc.lane(lanes, i);
    }
  acc.clear();
}

template <Form form>
bool write_out(MachineState& state, const Instruction&, const ResolvedAccesses& accesses, Trap& trap) {
  Accumulator& acc = accumulator<form>(state);
  const MemoryRange& target = accesses[1];
  if (!acc.empty() && (acc.groups != target.groups || acc.rows != target.rows || acc.cols != target.length))
    return fail(trap,
                fmt::format("the accumulator holds {} x {} x {} outputs, the write-out is for {} x {} x {}", acc.groups,
                            acc.rows, acc.cols, target.groups, target.rows, target.length),
                "were bmm_rows or bmm_cols changed in between?");
  write_out(state, acc, target, form == Form::kHeads || form == Form::kHeadVectors);
  return true;
}

/// Write-outs flush the adder tree themselves, so values do not change.
bool flush(MachineState&, const Instruction&, const ResolvedAccesses&, Trap&) { return true; }

constexpr Semantics kMatrixSemantics[] = {
    {Op::M_MM, accumulate_product<Form::kTile, false>},
    {Op::M_TMM, accumulate_product<Form::kTile, true>},
    {Op::M_BMM, accumulate_product<Form::kHeads, false>},
    {Op::M_BTMM, accumulate_product<Form::kHeads, true>},
    {Op::M_MV, accumulate_product<Form::kVector, false>},
    {Op::M_TMV, accumulate_product<Form::kVector, true>},
    {Op::M_BMV, accumulate_product<Form::kHeadVectors, false>},
    {Op::M_BTMV, accumulate_product<Form::kHeadVectors, true>},
    {Op::M_MM_WO, write_out<Form::kTile>},
    {Op::M_BMM_WO, write_out<Form::kHeads>},
    {Op::M_MV_WO, write_out<Form::kVector>},
    {Op::M_BMV_WO, write_out<Form::kHeadVectors>},
    {Op::M_SUM, flush},
};

}  // namespace

std::optional<Window> matrix_window(const MxFormat& input, const MxFormat& matrix, int contraction_bits) {
  for (const MxFormat* format : {&input, &matrix})
    if (!format->scaled() || format->element == MxElement::kE5M2) return std::nullopt;
  const int bits =
      mx_element(input.element).magnitude_bits + mx_element(matrix.element).magnitude_bits + contraction_bits;
  if (bits <= 31) return Window{31 - bits, true};
  if (bits <= 63) return Window{63 - bits, false};
  return std::nullopt;
}

std::span<const Semantics> matrix_semantics() { return kMatrixSemantics; }

}  // namespace dllm::npu
