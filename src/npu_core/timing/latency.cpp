#include "npu_core/timing/latency.h"

#include <algorithm>
#include <cmath>

#include "base/integers.h"

namespace dllm::npu {
namespace {

/// Energy of a draw in operations of a lane (0.744 pJ): twenty 32-bit multiplications of 0.4 pJ (3.1 pJ at 45 nm,
/// Horowitz 2014, scaled to 7 nm) and two logarithms. Assumed, 6 to 24.
constexpr std::int64_t kDrawLaneOps = 12;

}  // namespace

std::string_view name_of(Pipe pipe) {
  constexpr std::string_view kNames[] = {"add",   "mul",      "exp",  "reciprocal", "max",  "sum", "scan",
                                         "shift", "hadamard", "topk", "select",     "draw", "none"};
  return kNames[static_cast<std::size_t>(pipe)];
}

bool loads_packed(const IssueEvent& event) {
  return event.instruction->op == Op::H_PREFETCH_M && transfer_format(*event.state, *event.instruction).packed();
}

Cycle LatencyTable::fill() const {
  // Skew of rows and columns, the tree over MLEN / BLEN sub-arrays, and the conversion of the result (2).
  return 2 * machine_.blen - 2 + log2_exact(machine_.mlen / machine_.blen) + 2;
}

Cycle LatencyTable::drain(const IssueEvent& event) const {
  const MachineState& state = *event.state;
  switch (event.instruction->op) {
    case Op::M_MM_WO:
      return state.control(Csr::kMmRows);
    case Op::M_BMM_WO:
    case Op::M_BMV_WO: {
      // All sub-arrays drain a row of BLEN lanes per cycle. Heads whose lanes are in one row of VRAM drain together.
      const std::int64_t rows = event.instruction->op == Op::M_BMM_WO ? state.control(Csr::kBmmRows) : 1;
      const std::int64_t cols = state.control(Csr::kBmmCols), stride = state.control(Csr::kBmmHeadStride);
      const std::int64_t side_by_side =
          stride == 0 || stride >= machine_.vlen ? 1 : std::min<std::int64_t>(machine_.heads(), machine_.vlen / stride);
      return rows * ceil_div(cols, machine_.blen) * ceil_div(machine_.heads(), side_by_side);
    }
    default:
      return 1;
  }
}

Cycle LatencyTable::tiles(std::int64_t count) {
  const double exact =
      static_cast<double>(count) * (options_.compat_mlen ? static_cast<double>(machine_.mlen) : array_.tile_cycles) +
      tile_rest_;
  const double whole = std::floor(exact);
  tile_rest_ = exact - whole;
  return static_cast<Cycle>(whole);
}

Cost LatencyTable::matrix(const IssueEvent& event) {
  const MachineState& state = *event.state;
  const auto blen = static_cast<std::int64_t>(machine_.blen), mlen = static_cast<std::int64_t>(machine_.mlen);
  const std::int64_t rows = state.control(Csr::kBmmRows), cols = state.control(Csr::kBmmCols);
  const std::int64_t slices = machine_.heads() / static_cast<std::int64_t>(state.control(Csr::kBmmGroup));
  const auto single = event.instruction->op;
  Cost cost;
  switch (event.info->latency) {
    case Latency::kMatrixTile:
      cost.latency = tiles(1);
      // An idle row of PEs saves energy and no time: the weights take BLEN cycles.
      cost.macs = static_cast<double>(blen * mlen) * static_cast<double>(state.control(Csr::kMmRows));
      break;
    case Latency::kMatrixHeads:
      cost.latency = tiles(ceil_div(rows, blen) * ceil_div(cols, blen));
      cost.macs = static_cast<double>(rows * cols) * static_cast<double>(mlen);
      break;
    case Latency::kMatrixVector:
      if (single == Op::M_MV || single == Op::M_TMV) {
        // One row of the sub-arrays works, for as long as an M_MM needs for its BLEN x MLEN weights.
        cost.latency = tiles(1);
        cost.macs = static_cast<double>(mlen * blen);
        break;
      }
      // The matrix SRAM delivers one row per cycle, and a single vector cannot reuse it.
      cost.latency = single == Op::M_BMV ? slices * machine_.hlen : cols;
      cost.macs = static_cast<double>(cost.latency) * static_cast<double>(mlen);
      break;
    default:  // write-outs and M_SUM
      break;
  }
  cost.occupies = cost.latency;
  return cost;
}

Cost LatencyTable::draw(const MachineState& state) const {
  const Cycle cycles = array_.draw_cycles(state.control(Csr::kDrawPrecision) == 0);
  return {latency_.vector_draw + cycles - 1, cycles, Pipe::kDraw, 0, kDrawLaneOps * machine_.vlen};
}

Cost LatencyTable::cost(const IssueEvent& event) {
  const LatencyKeys& t = latency_;
  const std::int64_t elements = event.accesses->elements;
  const auto piped = [this](std::int64_t latency, Pipe pipe) { return Cost{latency, 1, pipe, 0, machine_.vlen}; };
  const auto streamed = [](std::int64_t cycles, Pipe pipe) {
    const Cycle length = std::max<Cycle>(1, cycles);
    return Cost{length, length, pipe, 0, length};
  };
  switch (event.info->latency) {
    case Latency::kMatrixTile:
    case Latency::kMatrixHeads:
    case Latency::kMatrixVector:
    case Latency::kWriteOut:
    case Latency::kMatrixFlush:
      return matrix(event);
    case Latency::kVectorAdd:
      return piped(t.vector_add, Pipe::kAdd);
    case Latency::kVectorMul:
      return piped(t.vector_mul, Pipe::kMul);
    case Latency::kVectorExp:
      return piped(t.vector_exp, Pipe::kExp);
    case Latency::kVectorReci:
      return piped(t.vector_reci, Pipe::kReci);
    case Latency::kVectorSum:
      return piped(t.vector_sum, Pipe::kSum);
    case Latency::kVectorMax:
      return piped(t.vector_max, Pipe::kMax);
    case Latency::kVectorDraw:
      return draw(*event.state);
    case Latency::kVectorScan:
      return piped(t.prefix_scan, Pipe::kScan);
    case Latency::kVectorShift:
      return piped(t.shift, Pipe::kShift);
    case Latency::kHadamard:
      return piped(log2_exact(event.state->control(Csr::kSegmentLength)) + 1, Pipe::kHadamard);
    case Latency::kRouterTopK:
      return streamed(elements * t.vector_max, Pipe::kTopK);
    case Latency::kTopKMask:
      return streamed(elements, Pipe::kTopK);
    case Latency::kSelectInt:
      return streamed(elements, Pipe::kSelect);
    case Latency::kMapFp:
      // A word is read, then written: two cycles each, of which the published accounts list one.
      return streamed(2 * elements, Pipe::kNone);
    case Latency::kScalarFp:
      return {t.scalar_fp, 1, Pipe::kNone, 0, 0};
    case Latency::kScalarExp:
    case Latency::kScalarReci:
    case Latency::kScalarSqrt:
      return {t.scalar_special, 1, Pipe::kNone, 0, 0};
    case Latency::kScalarInt:
      return {t.scalar_int, 1, Pipe::kNone, 0, 0};
    case Latency::kHbm:
    case Latency::kControl:
      break;
  }
  return {};
}

}  // namespace dllm::npu
