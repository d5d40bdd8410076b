#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "npu_core/device/device.h"
#include "npu_core/device/energy.h"
#include "npu_core/device/silicon.h"
#include "npu_core/device/unit_costs.h"

namespace dllm::npu {
namespace {

namespace units = unit_costs;

constexpr double kSramMm2PerMib = 0.302;  // ASAP7 8 KiB macro of 2,360 um2
constexpr double kMib = 1024.0 * 1024.0;

// ASAP7 cells: a flip-flop, and a bit of a two-way multiplexer (assumed: 1.6 NAND2).
constexpr double kFlopUm2 = 0.292, kMuxUm2 = 0.14;
constexpr double kSqrtUm2 = 160;       // assumed: V_SQRT_V of a lane; its table has two binades, and no unit in rtl/
constexpr double kDispatchUm2 = 4000;  // assumed: decoder and scoreboard lookups of one instruction per cycle
// Assumed, 8,000 to 20,000: a Gumbel draw per cycle, twenty 32-bit multipliers of 600 um2 and two logarithms.
constexpr double kDrawUm2 = 14000;
constexpr int kQueues = 6, kQueueBits = 64, kPipes = 11, kLaneBits = 16, kSumBits = 32;
constexpr int kTransferBits = 128;  // assumed: addresses, lengths and tag of a transfer in flight
constexpr int kCutBits = 64;        // assumed: what crosses a cut through a processing element
// Assumed: two bursts of 64 bytes wait per 64 bytes of a cycle, for alignment.
constexpr double kDmaUm2PerByte = 2 * 8 * (kFlopUm2 + kMuxUm2);
// The largest share of an area that slower gates save: mapped without a limit of time, the FP32 adder of rtl/ has 81 %
// of the area that it has when mapped for its shortest path.
constexpr double kSlack = 0.2;

/// Area of SRAM with that many ports, relative to one port. A port adds a word line and a pair of bit lines, so cells
/// grow in both directions, as in CACTI.
double port_area(std::int64_t ports) {
  const double side = port_energy(ports);
  return side * side;
}

double sram_mm2(double bytes, std::int64_t ports) { return bytes / kMib * kSramMm2PerMib * port_area(ports); }

/// The relative area of a unit that must be `need` times as fast as the one whose area is known. Above 1, area and
/// delay have a constant product; below 1, slower gates save up to kSlack.
double sizing(double need) { return need > 1 ? need : 1 - kSlack + kSlack * need; }

/// A unit whose latency is a key.
struct LatentUnit {
  double um2;
  double ns;            ///< for which that area is: published latency at 1 GHz, or the unit's path in ASAP7 if shorter
  std::int64_t cycles;  ///< the key
};

/// Sum over units of how much larger they are for their keys, um2.
double resized_um2(std::initializer_list<LatentUnit> all, double nominal_ghz) {
  double sum = 0;
  for (const LatentUnit& unit : all)
    sum += unit.um2 * (sizing(unit.ns * nominal_ghz / static_cast<double>(unit.cycles)) - 1);
  return sum;
}

double array_mm2(const Device& device) {
  const ArrayKeys& a = device.array;
  const FormatCosts& formats = device.numerics.costs;
  // A path that is longer than a cycle is cut by registers; results alternate, so that sums need not wait for it.
  const double cuts = std::max(0.0, formats.pe_ns * device.clock.nominal_ghz - 1) * kCutBits * kFlopUm2;
  const double converters = static_cast<double>(a.mlen) * std::max(1.0, a.macs_per_pe) * formats.input_um2;
  // Sums of MLEN / HLEN heads leave the adder trees at a level of their own.
  const double heads = static_cast<double>(a.mlen / a.hlen * a.blen) * kSumBits * (kFlopUm2 + kMuxUm2);
  return (device.macs_per_cycle() * (formats.pe_um2 + cuts) + converters + heads) * 1e-6;
}

/// Between memory and SRAM: buffers, converters of KV, and what unpacks packed weights (as vector code or in hardware,
/// these are the look-ups and multipliers of that rate).
double transfers_um2(const Device& device) {
  const FormatCosts& formats = device.numerics.costs;
  // Per cycle of the nominal clock: a lowered one changes no silicon.
  const double bytes = device.memory_gbps() / device.clock.nominal_ghz;
  const double unpacked = device.unpack_gbps() > 0 ? device.unpack_gbps() / device.clock.nominal_ghz : bytes;
  const double unpackers =
      device.numerics.weights_packed ? unpacked / device.numerics.weight_bytes * formats.unpack_um2 : 0;
  return bytes * kDmaUm2PerByte + bytes / device.numerics.kv_bytes * (formats.store_um2 + formats.load_um2) +
         unpackers + static_cast<double>(device.prefetch.outstanding) * kTransferBits * kFlopUm2;
}

}  // namespace

double port_energy(std::int64_t ports) {
  constexpr double kPortPitch = 0.3;  // assumed: growth of a cell's side per further port
  return 1 + kPortPitch * static_cast<double>(ports - 1);
}

double issue_um2_per_lane(const IssueKeys& issue) {
  const auto starts = static_cast<double>(issue.chaining != 0 ? issue.vector_starts : 1);
  const double chaining =
      issue.chaining == 0 ? 0 : kPipes * kLaneBits * kFlopUm2 + 2 * starts * kPipes * kLaneBits * kMuxUm2;
  return chaining + (starts - 1) * 3 * kLaneBits * (kFlopUm2 + kMuxUm2);
}

double latency_um2_per_lane(const Device& device) {
  const LatencyKeys& l = device.latency;
  const double levels = std::log2(static_cast<double>(device.array.vlen)),
               depth = levels / 11;  // published: 2048 lanes
  const double draws = device.array.noise_lanes / static_cast<double>(device.array.vlen) * kDrawUm2;
  return resized_um2({{units::bf16_add.um2, std::min(2.0, units::bf16_add.ns), l.vector_add},
                      {units::bf16_multiply.um2, std::min(1.0, units::bf16_multiply.ns), l.vector_mul},
                      {units::bf16_exp.um2, std::min(1.0, units::bf16_exp.ns), l.vector_exp},
                      {units::bf16_reciprocal.um2, std::min(2.0, units::bf16_reciprocal.ns), l.vector_reci},
                      {units::max_index_64.um2, 4 * depth, l.vector_max},
                      {units::f32_add.um2, 8 * depth, l.vector_sum},
                      {units::f32_add.um2, 9 * depth, l.prefix_scan},
                      {levels * kLaneBits * kMuxUm2, depth, l.shift},
                      {draws, 36, l.vector_draw}},
                     device.clock.nominal_ghz);
}

AreaModel area(const Device& device) {
  AreaModel model;
  const ArrayKeys& a = device.array;
  const IssueKeys& issue = device.issue;
  const SramKeys& sram = device.sram;
  const LatencyKeys& l = device.latency;
  const double effort = device.clock.effort, ghz = device.clock.nominal_ghz;
  model.matrix = array_mm2(device) * effort;
  const auto lanes = static_cast<double>(a.vlen * a.vector_units);
  model.vector = (vector_area_fit().at(static_cast<double>(a.vlen)) * static_cast<double>(a.vector_units) +
                  lanes * (kSqrtUm2 + latency_um2_per_lane(device)) * 1e-6 +
                  a.noise_lanes * static_cast<double>(a.vector_units) * kDrawUm2 * 1e-6) *
                 effort;
  const UnitCost special = units::bf16_exp;
  model.scalar = (units::scalar_fp.um2 + units::sequencer.um2 +
                  resized_um2({{units::scalar_fp.um2 - special.um2, 1, l.scalar_fp},
                               {special.um2, 1, l.scalar_special},
                               {units::sequencer.um2, std::min(1.0, units::sequencer.ns), l.scalar_int}},
                              ghz)) *
                 1e-6 * effort;
  const auto results = static_cast<double>(a.blen * a.blen * (issue.accumulators - 1));
  model.issue = (static_cast<double>(issue.width) * kDispatchUm2 +
                 static_cast<double>(issue.queue) * kQueues * kQueueBits * kFlopUm2 +
                 lanes * issue_um2_per_lane(issue) + results * kSumBits * (kFlopUm2 + kMuxUm2)) *
                1e-6 * effort;
  model.transfers = transfers_um2(device) * 1e-6 * effort;
  model.vector_sram = sram_mm2(static_cast<double>(device.vector_sram_bytes()), sram.vector_ports);
  model.matrix_sram = sram_mm2(
      static_cast<double>(sram.matrix_tiles * a.mlen * a.mlen) * device.numerics.costs.matrix_bytes, sram.matrix_ports);
  model.scalar_sram = sram_mm2(static_cast<double>(2 * sram.fp_words + 4 * sram.int_words), 2);
  model.instruction_sram = sram_mm2(static_cast<double>(4 * sram.instruction_words), 1);
  model.phy = device.memory_costs().phy_mm2 * static_cast<double>(device.memory.stacks);
  return model;
}

nlohmann::ordered_json area_json(const AreaModel& a) {
  return {{"matrix", a.matrix},
          {"vector", a.vector},
          {"scalar", a.scalar},
          {"issue", a.issue},
          {"transfers", a.transfers},
          {"vector_sram", a.vector_sram},
          {"matrix_sram", a.matrix_sram},
          {"scalar_sram", a.scalar_sram},
          {"instruction_sram", a.instruction_sram},
          {"phy", a.phy},
          {"total", a.total()}};
}

}  // namespace dllm::npu
