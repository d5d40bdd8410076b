#include "npu_core/machine/matrix_operands.h"

#include <algorithm>

#include "base/to_size.h"

namespace dllm::npu {
namespace {

/// Converts block marks to FixedProduct's form; a NaN block counts as zeros, and its row or column is flagged.
std::int16_t group_exponent(std::int16_t stored, std::uint8_t& nan) {
  if (stored == kNanBlock) {
    nan = 1;
    return kZeroBlock;
  }
  return stored;
}

}  // namespace

InputRows read_input(const MachineState& state, const MemoryRange& range, bool floating) {
  InputRows input{range.rows, range.length, state.format(Csr::kFormatMatrixInput), {}, {}, {}};
  const std::size_t lanes = range.length, grains = lanes / kExponentGrain;
  std::vector<float> values(lanes);
  std::vector<std::uint16_t> codes(lanes);
  std::vector<std::uint8_t> scales(input.format.scale_bytes(lanes));
  if (floating)
    input.real.resize(range.rows * lanes);
  else
    input.fixed.resize(range.rows * lanes), input.exponents.resize(range.rows * grains);
  for (std::uint32_t row = 0; row < range.rows; ++row) {
    const Bf16* in = state.vram.data() + range.base + row * range.row_stride;
    for (std::size_t i = 0; i < lanes; ++i) values[i] = lane_to_f32(state.config.lanes, in[i]);
    mx_quantize(input.format, values.data(), lanes, codes.data(), scales.data());
    if (floating) {
      mx_dequantize(input.format, codes.data(), scales.data(), lanes, input.real.data() + row * lanes);
      continue;
    }
    std::int32_t* fixed = input.fixed.data() + row * lanes;
    std::int16_t* exponents = input.exponents.data() + row * grains;
    const auto block = to_size(input.format.block);
    for (std::size_t start = 0; start < lanes; start += block) {
      std::int32_t any = 0;
      for (std::size_t i = start; i < start + block; ++i) {
        fixed[i] = static_cast<std::int32_t>(mx_fixed(input.format.element, codes[i]));
        any |= fixed[i];
      }
      const std::uint8_t scale = scales[start / block];
      const int exponent = scale == kMxScaleNan ? kNanBlock : any == 0 ? kZeroBlock : scale - kMxScaleBias;
      for (std::size_t i = start; i < start + block; i += kExponentGrain)
        exponents[i / kExponentGrain] = static_cast<std::int16_t>(exponent);
    }
  }
  return input;
}

void read_slice(const MachineState& state, const MatrixSlice& slice, const MxFormat& format, int input_block,
                FixedProduct& p) {
  const auto mlen = to_size(state.config.mlen), k = to_size(slice.k), n = to_size(slice.n);
  p.k = slice.k;
  p.n = slice.n;
  p.group = slice.transposed ? std::min({format.block, input_block, slice.k}) : 1;
  p.column_width = slice.transposed ? 1 : std::min(state.config.blen, static_cast<int>(kExponentGrain));
  const auto group = to_size(p.group), groups = k / group, columns = n / to_size(p.column_width);
  p.w.resize(k * n);
  p.ew.resize(groups * columns);
  p.w_nan.assign(n, 0);
  const std::int32_t* values = state.mram.values.data();
  const std::int16_t* exponents = state.mram.exponents.data();
  if (slice.transposed) {
    for (std::size_t x = 0; x < n; ++x) {
      const std::size_t row = slice.base + x * mlen;
      for (std::size_t j = 0; j < k; ++j) p.w[j * n + x] = values[row + j];
      for (std::size_t g = 0; g < groups; ++g)
        p.ew[g * columns + x] = group_exponent(exponents[(row + g * group) / kExponentGrain], p.w_nan[x]);
    }
    return;
  }
  const auto width = to_size(p.column_width);
  for (std::size_t j = 0; j < k; ++j) {
    const std::size_t row = slice.base + j * mlen;
    std::copy_n(values + row, n, p.w.data() + j * n);
    for (std::size_t c = 0; c < columns; ++c) {
      std::uint8_t nan = 0;
      p.ew[j * columns + c] = group_exponent(exponents[(row + c * width) / kExponentGrain], nan);
      if (nan != 0) std::fill_n(p.w_nan.data() + c * width, width, std::uint8_t{1});
    }
  }
}

std::vector<float> read_slice_f32(const MachineState& state, const MatrixSlice& slice, const MxFormat& format) {
  const auto mlen = to_size(state.config.mlen), k = to_size(slice.k), n = to_size(slice.n);
  std::vector<float> w(k * n);
  const bool raw_codes = format.element == MxElement::kE5M2;
  const auto value = [&](std::size_t element) {
    const std::int32_t stored = state.mram.values[element];
    if (format.element == MxElement::kF16) return f16_to_f32(static_cast<Bf16>(stored));
    if (!format.scaled()) return bf16_to_f32(static_cast<Bf16>(stored));
    const std::int16_t exponent = state.mram.exponents[element / kExponentGrain];
    if (raw_codes) {  // one element through the codec: exact, and special codes keep their meaning
      const MxFormat single{format.element, format.rule, 1};
      const auto code = static_cast<std::uint16_t>(stored);
      const auto scale = static_cast<std::uint8_t>(exponent);
      float result = 0.0f;
      mx_dequantize(single, &code, &scale, 1, &result);
      return result;
    }
    if (exponent == kNanBlock) return bf16_to_f32(kBf16Nan);
    if (exponent == kZeroBlock) return 0.0f;
    return static_cast<float>(std::ldexp(static_cast<double>(stored), exponent - format.fraction()));
  };
  for (std::size_t j = 0; j < k; ++j)
    for (std::size_t x = 0; x < n; ++x)
      w[j * n + x] = value(slice.transposed ? slice.base + x * mlen + j : slice.base + j * mlen + x);
  return w;
}

void select_lanes(const InputRows& input, std::uint32_t lane, FixedProduct& p) {
  const std::size_t m = input.rows, k = to_size(p.k), group = to_size(p.group), groups = k / group;
  p.m = static_cast<int>(m);
  p.a.resize(m * k);
  p.ea.resize(m * groups);
  p.a_nan.assign(m, 0);
  for (std::size_t i = 0; i < m; ++i) {
    const std::size_t row = i * input.lanes + lane;
    std::copy_n(input.fixed.data() + row, k, p.a.data() + i * k);
    for (std::size_t g = 0; g < groups; ++g)
      p.ea[i * groups + g] = group_exponent(input.exponents[(row + g * group) / kExponentGrain], p.a_nan[i]);
  }
}

}  // namespace dllm::npu
