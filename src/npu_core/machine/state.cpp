#include "npu_core/machine/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/to_size.h"

namespace dllm::npu {
namespace {

/// Why a format register cannot hold the value; empty if it can.
std::string format_fault(const MachineConfig& config, Csr which, std::uint32_t value) {
  const std::string_view name = csr_table()[static_cast<std::size_t>(which)].name;
  const auto format = mx_format_from_number(value);
  if (!format) return fmt::format("{} = {:#x} is not a number format", name, value);
  if (format->block > config.mlen)
    return fmt::format("{}: blocks of {} are longer than MLEN {}", name, format->block, config.mlen);
  if (format->packed() && which != Csr::kFormatWeight)
    return fmt::format("{}: {} is a format of weights only", name, mx_format_name(*format));
  return {};
}

}  // namespace

MachineState::MachineState(const MachineConfig& machine, Memories memories)
    : config(machine), int_mem(machine.int_words) {
  if (memories == Memories::kAll) {
    vram = LazyArray<Bf16>(machine.vram_elements);
    fp_mem = LazyArray<Bf16>(machine.fp_words);
    mram.values = LazyArray<std::int32_t>(machine.mram_elements);
    mram.exponents = LazyArray<std::int16_t>((machine.mram_elements + kExponentGrain - 1) / kExponentGrain);
    mram.row_format.assign(machine.mram_elements / static_cast<std::uint64_t>(machine.mlen), 0);
    grow_hbm(0);
  }
  loops.reserve(to_size(machine.loop_depth));
  reset_registers();
}

/// In whole pieces, so that a program which walks upwards does not remap at every step.
void MachineState::grow_hbm(std::uint64_t end) {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 26;
  hbm.grow(std::min(config.hbm_bytes, (end / kPiece + 1) * kPiece));
}

void MachineState::reset_registers() {
  gp.fill(0);
  fp_accumulator.fill(0.0);
  address.fill(0);
  scale_reg = stride_reg = v_mask = 0;
  loops.clear();
  acc_mm.clear();
  acc_bmm.clear();
  acc_mv.clear();
  acc_bmv.clear();
  const auto set = [this](Csr which, std::uint64_t value) {
    csr[static_cast<std::size_t>(which)] = static_cast<std::uint32_t>(value);
  };
  const auto number = [](int value) { return static_cast<std::uint64_t>(value); };
  set(Csr::kBmmScale, std::bit_cast<std::uint32_t>(1.0f));
  set(Csr::kPrefetchMRows, number(config.prefetch_m_rows == 0 ? config.mlen : config.prefetch_m_rows));
  set(Csr::kPrefetchVRows, number(config.prefetch_v_rows));
  set(Csr::kStoreVRows, number(config.store_v_rows));
  set(Csr::kBmmRows, number(config.mlen));
  set(Csr::kBmmCols, number(config.mlen));
  set(Csr::kBmmGroup, number(config.heads()));
  set(Csr::kBmmHeadStride, 0);
  set(Csr::kBmmLayout, 0);
  set(Csr::kMmRows, number(config.blen));
  set(Csr::kSegmentLength, number(config.hlen));
  set(Csr::kRouterExperts, 32);
  set(Csr::kRouterTop, 4);
  set(Csr::kFormatWeight, mx_format_number(config.weight));
  set(Csr::kFormatMatrixKv, mx_format_number(config.matrix_kv));
  set(Csr::kFormatActivation, mx_format_number(config.activation));
  set(Csr::kFormatVectorKv, mx_format_number(config.vector_kv));
  set(Csr::kFormatMatrixInput, mx_format_number(config.matrix_input));
  for (const Csr which : {Csr::kDrawSeedLow, Csr::kDrawSeedHigh, Csr::kDrawStream, Csr::kDrawStep,
                          Csr::kDrawTemperatureLow, Csr::kDrawPrecision})
    set(which, 0);
  set(Csr::kDrawTemperatureHigh, std::bit_cast<std::uint64_t>(1.0) >> 32);
  set(Csr::kDrawExcept, 0xffffffffu);
  set(Csr::kDrawTokens, 0xffffffffu);
}

std::string MachineState::set_control(Csr which, std::uint32_t value) {
  const std::string_view name = csr_table()[static_cast<std::size_t>(which)].name;
  const auto limited = [&](int low, int high, int step) -> std::string {
    if (value >= static_cast<std::uint32_t>(low) && value <= static_cast<std::uint32_t>(high) &&
        value % static_cast<std::uint32_t>(step) == 0)
      return {};
    return fmt::format("{} = {} is not in {}..{} in steps of {}", name, value, low, high, step);
  };
  std::string fault = which == Csr::kDrawPrecision ? limited(0, 2, 1) : "";
  switch (which) {
    default:  // the scale and what draws read may have any bits
      break;
    case Csr::kPrefetchMRows:
    case Csr::kPrefetchVRows:
    case Csr::kStoreVRows:
      fault = limited(1, 1 << 24, 1);
      break;
    case Csr::kBmmRows:
    case Csr::kBmmCols:
      fault = limited(config.blen, config.mlen, config.blen);
      break;
    case Csr::kMmRows:
      fault = limited(1, config.blen, 1);
      break;
    case Csr::kBmmGroup:
      if (value == 0 || config.heads() % static_cast<int>(std::min(value, 1u << 20)) != 0)
        fault = fmt::format("{} = {} does not divide the {} heads", name, value, config.heads());
      break;
    case Csr::kBmmHeadStride:
      if (value % static_cast<std::uint32_t>(config.blen) != 0)
        fault = fmt::format("{} = {} is not a multiple of BLEN {}", name, value, config.blen);
      break;
    case Csr::kBmmLayout:
      if (value > 1) fault = fmt::format("{} = {} is neither 0 nor 1", name, value);
      break;
    case Csr::kSegmentLength:
      if (!std::has_single_bit(value) || value > static_cast<std::uint32_t>(config.vlen))
        fault = fmt::format("{} = {} is not a power of two up to VLEN {}", name, value, config.vlen);
      break;
    case Csr::kRouterExperts:
    case Csr::kRouterTop:
      fault = limited(1, config.vlen, 1);
      break;
    case Csr::kFormatWeight:
    case Csr::kFormatMatrixKv:
    case Csr::kFormatActivation:
    case Csr::kFormatVectorKv:
    case Csr::kFormatMatrixInput:
      fault = format_fault(config, which, value);
      break;
  }
  if (fault.empty()) csr[static_cast<std::size_t>(which)] = value;
  return fault;
}

std::uint64_t space_size(const MachineConfig& config, Space space) {
  switch (space) {
    case Space::kVram:
      return config.vram_elements;
    case Space::kMram:
      return config.mram_elements;
    case Space::kFpMem:
      return config.fp_words;
    case Space::kIntMem:
      return config.int_words;
    case Space::kHbm:
      return config.hbm_bytes;
    case Space::kAccMm:
    case Space::kAccBmm:
    case Space::kAccMv:
    case Space::kAccBmv:
      break;
  }
  return 0;
}

}  // namespace dllm::npu
