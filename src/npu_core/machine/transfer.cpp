#include <algorithm>
#include <cstring>
#include <vector>

#include "base/to_size.h"
#include "npu_core/machine/semantics.h"
#include "numerics/packed.h"

namespace dllm::npu {
namespace {

struct Buffers {
  std::vector<std::uint16_t> codes;
  std::vector<std::uint8_t> scales;
  std::vector<float> values;

  Buffers(const MxFormat& format, std::size_t n) : codes(n), scales(format.scale_bytes(n)), values(n) {}
};

/// Fixed-point elements and block exponents of one row of MLEN. A NaN or infinite element makes its block NaN, because
/// the array adds integers and cannot represent it otherwise.
void decode_row(const MxFormat& format, const Buffers& buffers, std::int32_t* values, std::int16_t* exponents) {
  const std::size_t n = buffers.codes.size();
  if (!format.scaled() || format.element == MxElement::kE5M2) {
    // Operands of the floating path: E5M2's products do not fit into a window, so its raw codes are stored.
    for (std::size_t i = 0; i < n; ++i) values[i] = buffers.codes[i];
    for (std::size_t i = 0; i < n; i += kExponentGrain)
      exponents[i / kExponentGrain] = format.scaled() ? buffers.scales[i / to_size(format.block)] : std::int16_t{0};
    return;
  }
  const auto block = to_size(format.block);
  for (std::size_t start = 0; start < n; start += block) {
    const std::uint8_t scale = buffers.scales[start / block];
    bool nan = scale == kMxScaleNan;
    std::int32_t any = 0;
    for (std::size_t i = start; i < start + block; ++i) {
      nan = nan || mx_is_special(format.element, buffers.codes[i]);
      values[i] = static_cast<std::int32_t>(mx_fixed(format.element, buffers.codes[i]));
      any |= values[i];
    }
    const auto exponent = static_cast<std::int16_t>(nan ? kNanBlock : any == 0 ? kZeroBlock : scale - kMxScaleBias);
    for (std::size_t i = start; i < start + block; i += kExponentGrain) exponents[i / kExponentGrain] = exponent;
  }
}

/// The FP16 values of packed weights by code: what the vector unit's look-up with a block's scale gives.
class LookUp {
 public:
  explicit LookUp(const MxFormat& format) : element_(format.element), values_(std::size_t{1} << format.bits()) {}

  void decode_row(const Buffers& buffers, std::int32_t* values, std::int16_t* exponents) {
    const std::size_t n = buffers.codes.size();
    for (std::size_t start = 0; start < n; start += kPackedBlock) {
      std::uint16_t scale = 0;
      std::memcpy(&scale, buffers.scales.data() + 2 * (start / kPackedBlock), 2);
      for (std::size_t code = 0; code < values_.size(); ++code)
        values_[code] = unpack_f16(element_, static_cast<std::uint16_t>(code), scale);
      for (std::size_t i = start; i < start + kPackedBlock; ++i) values[i] = values_[buffers.codes[i]];
    }
    std::fill_n(exponents, n / kExponentGrain, std::int16_t{0});
  }

 private:
  MxElement element_;
  std::vector<std::uint16_t> values_;
};

void prefetch_packed(MachineState& state, const MxFormat& format, const MemoryRange& codes, const MemoryRange& scales,
                     const MemoryRange& target) {
  const std::size_t n = target.length;
  constexpr MxFormat kUnpacked{MxElement::kF16, MxRule::kOcp, 1};
  Buffers buffers(format, n);
  LookUp table(format);
  for (std::uint32_t row = 0; row < target.rows; ++row) {
    mx_unpack(format.bits(), state.hbm.data() + codes.run(row), n, buffers.codes.data());
    std::memcpy(buffers.scales.data(), state.hbm.data() + scales.run(row), scales.length);
    const std::uint64_t at = target.base + row * target.row_stride;
    table.decode_row(buffers, state.mram.values.data() + at, state.mram.exponents.data() + at / kExponentGrain);
    state.mram.row_format[at / n] = mx_format_number(kUnpacked) + 1;
  }
}

void prefetch_matrix(MachineState& state, const MxFormat& format, const MemoryRange& elements,
                     const MemoryRange* scales, const MemoryRange& target) {
  if (format.packed()) return prefetch_packed(state, format, elements, *scales, target);
  const std::size_t n = target.length;
  Buffers buffers(format, n);
  for (std::uint32_t row = 0; row < target.rows; ++row) {
    mx_unpack(format.bits(), state.hbm.data() + elements.base + row * elements.row_stride, n, buffers.codes.data());
    if (scales != nullptr)
      std::memcpy(buffers.scales.data(), state.hbm.data() + scales->base + row * scales->row_stride, scales->length);
    const std::uint64_t at = target.base + row * target.row_stride;
    decode_row(format, buffers, state.mram.values.data() + at, state.mram.exponents.data() + at / kExponentGrain);
    state.mram.row_format[at / n] = mx_format_number(format) + 1;
  }
}

void prefetch_vector(MachineState& state, const MxFormat& format, const MemoryRange& elements,
                     const MemoryRange* scales, const MemoryRange& target) {
  const std::size_t n = target.length;
  Buffers buffers(format, n);
  for (std::uint32_t row = 0; row < target.rows; ++row) {
    mx_unpack(format.bits(), state.hbm.data() + elements.base + row * elements.row_stride, n, buffers.codes.data());
    Bf16* out = state.vram.data() + target.base + row * target.row_stride;
    if (format == state.config.lane_format()) {
      std::memcpy(out, buffers.codes.data(), 2 * n);
      continue;
    }
    if (scales != nullptr)
      std::memcpy(buffers.scales.data(), state.hbm.data() + scales->base + row * scales->row_stride, scales->length);
    mx_dequantize(format, buffers.codes.data(), buffers.scales.data(), n, buffers.values.data());
    for (std::size_t i = 0; i < n; ++i) out[i] = f32_to_lane(state.config.lanes, buffers.values[i]);
  }
}

void store_vector(MachineState& state, const MxFormat& format, const MemoryRange& source, const MemoryRange& elements,
                  const MemoryRange* scales) {
  const std::size_t n = source.length;
  Buffers buffers(format, n);
  for (std::uint32_t row = 0; row < source.rows; ++row) {
    const Bf16* in = state.vram.data() + source.base + row * source.row_stride;
    for (std::size_t i = 0; i < n; ++i) buffers.values[i] = lane_to_f32(state.config.lanes, in[i]);
    if (format == state.config.lane_format())
      buffers.codes.assign(in, in + n);  // bit for bit, including NaN payloads
    else
      mx_quantize(format, buffers.values.data(), n, buffers.codes.data(), buffers.scales.data());
    mx_pack(format.bits(), buffers.codes.data(), n, state.hbm.data() + elements.base + row * elements.row_stride);
    if (scales != nullptr)
      std::memcpy(state.hbm.data() + scales->base + row * scales->row_stride, buffers.scales.data(), scales->length);
  }
}

/// HBM to MRAM or VRAM: accesses are the elements, the scales if there are any, the target.
template <auto prefetch>
bool load_from_hbm(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap&) {
  const MxFormat format = transfer_format(state, instruction);
  const bool scaled = format.scaled();
  prefetch(state, format, accesses[0], scaled ? &accesses[1] : nullptr, accesses[scaled ? 2 : 1]);
  return true;
}

bool store_to_hbm(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap&) {
  const MxFormat format = transfer_format(state, instruction);
  store_vector(state, format, accesses[0], accesses[1], format.scaled() ? &accesses[2] : nullptr);
  return true;
}

constexpr Semantics kTransfersSemantics[] = {
    {Op::H_PREFETCH_M, load_from_hbm<prefetch_matrix>},
    {Op::H_PREFETCH_V, load_from_hbm<prefetch_vector>},
    {Op::H_STORE_V, store_to_hbm},
};

}  // namespace

std::span<const Semantics> transfer_semantics() { return kTransfersSemantics; }

}  // namespace dllm::npu
