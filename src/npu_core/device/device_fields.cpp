#include <algorithm>
#include <iterator>

#include "npu_core/device/device.h"

namespace dllm::npu {
namespace {

constexpr double kBig = 1e15;

}  // namespace

// An entry is: section, key, member, range, unit, meaning.
#define INTEGER(section, key, low, unit, meaning)            \
  {#section,                                                 \
   #key,                                                     \
   DeviceField::kInteger,                                    \
   [](Device& d) -> std::int64_t& { return d.section.key; }, \
   nullptr,                                                  \
   nullptr,                                                  \
   low,                                                      \
   kBig,                                                     \
   unit,                                                     \
   meaning}
#define NUMBER(section, key, low, high, unit, meaning) \
  {#section,                                           \
   #key,                                               \
   DeviceField::kNumber,                               \
   nullptr,                                            \
   [](Device& d) -> double& { return d.section.key; },                       \
   nullptr,                                            \
   low,                                                \
   high,                                               \
   unit,                                               \
   meaning}
#define TEXT(section, key, meaning)                      \
  {#section, #key,    DeviceField::kText,                \
   nullptr,  nullptr, [](Device& d) -> std::string& { return d.section.key; }, \
   0,        0,       "",                                \
   meaning}

// clang-format off
namespace {

std::vector<DeviceField> chip_fields() {
  return {
      INTEGER(array, blen, 1, "PEs", "side of a systolic sub-array"),
      INTEGER(array, mlen, 1, "lanes", "lanes along K; MLEN / BLEN sub-arrays"),
      INTEGER(array, vlen, 1, "lanes", "lanes of the vector unit"),
      INTEGER(array, hlen, 1, "lanes", "lanes of one attention head"),
      NUMBER(array, macs_per_pe, 0.01, 64, "", "multiply-accumulates of a PE per cycle"),
      INTEGER(array, vector_units, 1, "", "vector contexts that run at once"),
      NUMBER(array, noise_lanes, 0, 65536, "", "Gumbel draws per cycle and vector context; 0: no generators"),
      NUMBER(clock, ghz, 0.01, 20, "GHz", "clock of all units"),
      NUMBER(clock, nominal_ghz, 0.01, 20, "GHz", "clock for which areas and energies hold"),
      NUMBER(clock, nominal_v, 0.1, 2, "V", "supply at that clock"),
      NUMBER(clock, min_v, 0.1, 2, "V", "lowest supply"),
      NUMBER(clock, max_v, 0.1, 2, "V", "highest supply"),
      NUMBER(clock, threshold_v, 0.01, 1, "V", "threshold of the alpha-power law"),
      NUMBER(clock, alpha, 1, 2, "", "exponent of the alpha-power law"),
      INTEGER(issue, width, 1, "", "instructions dispatched per cycle, up to 8"),
      INTEGER(issue, queue, 1, "", "length of each unit's instruction queue, up to 256"),
      INTEGER(issue, vector_starts, 1, "", "vector instructions that start per cycle, up to 8"),
      INTEGER(issue, chaining, 0, "", "1: a pipe's newest result is read from its output latch; 0: from vector SRAM"),
      INTEGER(issue, accumulators, 1, "", "results of the array that wait for their write-out, up to 8"),
      INTEGER(sram, matrix_tiles, 1, "tiles", "matrix SRAM, tiles of MLEN x MLEN"),
      INTEGER(sram, vector_rows, 1, "rows", "vector SRAM, rows of VLEN BF16"),
      INTEGER(sram, fp_words, 8, "words", "FP SRAM, BF16"),
      INTEGER(sram, int_words, 8, "words", "integer SRAM, 32 bit"),
      INTEGER(sram, vector_ports, 1, "", "row accesses of the vector SRAM per cycle"),
      INTEGER(sram, matrix_ports, 1, "", "row accesses of the matrix SRAM per cycle: 1, or 2 (a read and a write)"),
      INTEGER(sram, instruction_words, 64, "words", "instruction SRAM, 32 bit; longer programs stream from memory"),
      TEXT(memory, standard, "DRAM standard: `dllm npu dram --list`"),
      INTEGER(memory, stacks, 1, "", "stacks (HBM) or 64-bit interfaces (LPDDR)"),
      TEXT(memory, mapping, "address mapping; empty: the standard's"),
      TEXT(memory, row_policy, "open, closed or timeout"),
      TEXT(memory, refresh, "all-bank, per-bank or none"),
      NUMBER(memory, dma_gbps, 0, 1e6, "GB/s", "limit of the DMA engines; 0: none"),
      NUMBER(memory, frontend_ns, 0, 1e6, "ns", "latency between client and controller"),
      NUMBER(memory, phy_mm2, 0, 1e3, "mm2", "interface and controller on the chip, per stack"),
      INTEGER(prefetch, matrix_rows, 1, "rows", "of MLEN per H_PREFETCH_M"),
      INTEGER(prefetch, vector_rows, 1, "rows", "of VLEN per H_PREFETCH_V"),
      INTEGER(prefetch, writeback_rows, 1, "rows", "of VLEN per H_STORE_V"),
      INTEGER(prefetch, outstanding, 1, "", "transfers in flight"),
      INTEGER(latency, vector_add, 1, "cycles", "vector addition and subtraction"),
      INTEGER(latency, vector_mul, 1, "cycles", "vector multiplication"),
      INTEGER(latency, vector_exp, 1, "cycles", "vector exponential"),
      INTEGER(latency, vector_reci, 1, "cycles", "vector reciprocal"),
      INTEGER(latency, vector_max, 1, "cycles", "vector maximum, with or without index"),
      INTEGER(latency, vector_sum, 1, "cycles", "vector sum"),
      INTEGER(latency, scalar_fp, 1, "cycles", "scalar FP addition and multiplication"),
      INTEGER(latency, scalar_special, 1, "cycles", "scalar exponential, root, reciprocal"),
      INTEGER(latency, scalar_int, 1, "cycles", "scalar integer operations"),
      INTEGER(latency, prefix_scan, 1, "cycles", "prefix sum"),
      INTEGER(latency, shift, 1, "cycles", "lane shift"),
      INTEGER(latency, vector_draw, 1, "cycles", "first draw of a row, from its counter to the arg-max"),
  };
}

std::vector<DeviceField> system_fields() {
  return {
      TEXT(numerics, weight, "format of weights in memory"),
      TEXT(numerics, activation, "format of activations at the array"),
      TEXT(numerics, kv, "format of keys and values"),
      TEXT(numerics, logits, "format of logits that leave the chip"),
      TEXT(numerics, smooth_keys, "centre of a channel of keys: none, mean, minmax"),
      TEXT(numerics, smooth_values, "the same of values"),
      NUMBER(numerics, smooth_alpha, 0, 1, "", "power of a channel's largest distance from the centre: its factor"),
      NUMBER(host, dispatch_us, 0, 1e6, "us", "per operator"),
      NUMBER(host, batch_us, 0, 1e6, "us", "per batch of operators"),
      INTEGER(host, batch_ops, 1, "", "operators per batch"),
      NUMBER(host, dequantize_gbps, 0, 1e6, "GB/s", "weights unpacked by vector code; 0: by hardware"),
      INTEGER(host, cores, 0, "", "cores of the host's processor; 0: it is not described"),
      NUMBER(host, int8_gops, 0, 1e6, "GOP/s", "achieved by all cores, products with quantized weights"),
      NUMBER(host, f16_gflops, 0, 1e6, "GFLOP/s", "achieved by all cores, attention"),
      NUMBER(host, f32_gflops, 0, 1e6, "GFLOP/s", "achieved by all cores, everything else"),
      NUMBER(host, memory_gbps, 0, 1e6, "GB/s", "achieved by all cores, of the memory shared with the device"),
      NUMBER(host, shared_gbps, 0, 1e6, "GB/s", "achieved by cores and device together; 0: the memory's peak"),
      NUMBER(host, active_w, 0, 1e4, "W", "of all cores at work"),
      NUMBER(host, idle_w, 0, 1e4, "W", "of all cores when idle"),
      INTEGER(window, bytes, 0, "bytes", "addresses seen at once; 0: all"),
      INTEGER(window, staging_bytes, 0, "bytes", "double buffer for weights outside the window"),
      NUMBER(window, map_us, 0, 1e6, "us", "per mapping, with the unmapping of what it replaces"),
      NUMBER(window, map_us_per_page, 0, 1e6, "us", "per page mapped"),
      INTEGER(window, page_bytes, 4096, "bytes", "page"),
      INTEGER(window, mapping_bytes, 0, "bytes", "largest mapping; 0: any"),
      INTEGER(window, mappings, 0, "", "mappings at the same time; 0: any number"),
      NUMBER(thermal, sustained_w, 0, 1e4, "W", "power that can be kept up; 0: no limit"),
      NUMBER(thermal, rise_k, 0, 1e3, "K", "above the surroundings, at which the clock is lowered"),
      NUMBER(thermal, resume_k, 0, 1e3, "K", "rise at which the full clock returns"),
      NUMBER(thermal, capacity_j_per_k, 0, 1e6, "J/K", "heat capacity"),
      NUMBER(thermal, throttled_ghz, 0, 20, "GHz", "lowered clock; the host slows in proportion"),
      NUMBER(thermal, start_k, 0, 1e3, "K", "rise when an answer begins"),
      NUMBER(energy, mac_pj, 0, 1e3, "pJ", "per multiply-accumulate"),
      NUMBER(energy, vector_lane_pj, 0, 1e3, "pJ", "per lane and cycle of vector work"),
      NUMBER(energy, sram_pj_per_byte, 0, 1e3, "pJ/B", "SRAM access"),
      NUMBER(energy, dram_read_pj_per_byte, 0, 1e4, "pJ/B", "DRAM core, read"),
      NUMBER(energy, dram_write_pj_per_byte, 0, 1e4, "pJ/B", "DRAM core, write"),
      NUMBER(energy, dram_activate_pj, 0, 1e6, "pJ", "activation and precharge of a row"),
      NUMBER(energy, dram_io_pj_per_byte, 0, 1e4, "pJ/B", "interface of both sides"),
      NUMBER(energy, dram_background_mw, 0, 1e6, "mW", "standby per pseudo-channel"),
      NUMBER(energy, phy_idle_w, 0, 1e3, "W", "interface of a stack, idle or not"),
      NUMBER(energy, leakage_w_per_mm2, 0, 1e2, "W/mm2", "leakage at the nominal voltage"),
      NUMBER(energy, clock_w_per_mm2, 0, 1e2, "W/mm2", "clock tree at the nominal clock and voltage"),
      NUMBER(energy, static_w, 0, 1e4, "W", "of what the area model does not know"),
  };
}

}  // namespace
// clang-format on

const std::vector<DeviceField>& device_fields() {
  static const std::vector<DeviceField> fields = [] {
    std::vector<DeviceField> all = chip_fields();
    std::ranges::copy(system_fields(), std::back_inserter(all));
    return all;
  }();
  return fields;
}

}  // namespace dllm::npu
