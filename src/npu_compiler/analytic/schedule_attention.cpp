#include "npu_compiler/analytic/schedule_attention.h"

#include <algorithm>
#include <cmath>

#include "base/integers.h"
#include "npu_compiler/lowering/mapping.h"
#include "npu_core/device/device.h"
#include "npu_core/device/smoothing.h"

namespace dllm::npu {

double result_delay(const ArrayKeys& array) {
  return static_cast<double>(3 * array.blen + log2_exact(array.mlen / array.blen));
}

double queue_lead(const ArrayKeys& array, double queue, double k_tiles) {
  const double tiles = queue * k_tiles / (k_tiles + 1) * array.tile_cycles;
  const double write_outs = std::ceil(queue / (k_tiles + 1)) * k_tiles * array.tile_cycles;
  return std::max(0.0, std::min(tiles, write_outs - result_delay(array) + static_cast<double>(array.blen)));
}

namespace {

/// Whether the array adds up the probabilities of smoothed values.
bool adds_shares(const Device& device) { return device.numerics.smooth_values != "none"; }

/// From one block's products with V to the next one's: these are issued after the results have been divided by their
/// sums. The products, the delay, and row by row the write-out, then the reciprocal and the product of four rows at a
/// time. Of smoothed values two rows, which copy the sum and get factors and centres.
double value_round(const Device& device, double products, double rows) {
  const LatencyKeys& t = device.latency;
  const double divided =
      1 + (adds_shares(device) ? static_cast<double>(t.shift + t.vector_reci + 3 * t.vector_mul + t.vector_add + 6) / 2
                               : static_cast<double>(t.vector_reci + 2 * t.vector_mul + 4) / 4);
  return products + result_delay(device.array) + divided * rows;
}

/// Of a row, in sequence: the maxima, the segment's maximum, subtraction, exponential, the sums. A row of a long
/// softmax runs alone; others run in pairs.
double softmax_chain(const LatencyKeys& t, double tiles, bool running) {
  const double each = static_cast<double>(t.vector_max + t.vector_add);
  const double once = static_cast<double>(t.vector_max + t.vector_add + t.vector_exp + t.vector_mul);
  const double rescaled =
      static_cast<double>(t.vector_max + t.vector_add + t.vector_exp + 2 * t.vector_mul + t.vector_sum);
  return running ? (tiles - 1) * each + once + rescaled : ((tiles - 1) * each + once) / 2;
}

/// What a step does with the rows of a sequence, slab by slab (compiler/smoothing.cpp): two operations on each of K or
/// V, one on queries; statistics go through the rows, each operation waiting for the one before. The factors are loaded
/// or stored meanwhile.
double smoothing_cycles(const Device& device, const AttentionLoad& load, double kv_slabs) {
  const NumericsKeys& n = device.numerics;
  const LatencyKeys& t = device.latency;
  constexpr double kAccesses = 3;  // of an operation on rows
  const auto rows = static_cast<double>(load.rows);
  constexpr double kSetUp = 50;  // instructions around a slab's loop: pointers of eight rows
  const double operation = kAccesses / static_cast<double>(device.sram.vector_ports);
  double cycles = 0;
  for (const std::string& centre : {n.smooth_keys, n.smooth_values}) {
    if (centre == "none") continue;
    cycles += (2 * operation * rows + kSetUp) * kv_slabs;
    if (!takes_statistics(load.rows, load.keys)) continue;
    const double extremes = static_cast<double>(t.vector_max) + 1, sums = static_cast<double>(t.vector_add) + 1;
    cycles += (extremes + (centre == "mean" ? sums : 0)) * rows * kv_slabs;
  }
  if (n.smooth_keys != "none") cycles += (operation * rows + kSetUp) * load.query_slabs;
  return cycles;
}

}  // namespace

AttentionWork attention_work(const Device& device, const op::Attention& o, const AttentionLoad& load) {
  const ArrayKeys& array = device.array;
  const auto ports = static_cast<double>(device.sram.vector_ports);
  AttentionWork work;
  const bool is_wide = o.head_dim > array.hlen;
  const std::int64_t tile = is_wide ? array.vlen : array.hlen;
  const std::int64_t most = score_rows(sram_shape(device));
  const auto all_tiles = static_cast<double>(ceil_div(load.keys, tile));
  const double masked = load.keys % tile == 0 ? 0 : 1;
  // Per block: lane groups of scores, of values, pieces of a contraction; slabs of outputs.
  const double groups = static_cast<double>(array.vlen / array.mlen);
  const double pieces = is_wide ? static_cast<double>(o.head_dim / array.mlen) : 1;
  const double value_groups = is_wide ? pieces : groups;
  const double out_slabs = is_wide ? static_cast<double>(o.head_dim / array.vlen) : 1;
  const double units = is_wide ? static_cast<double>(o.heads) : load.query_slabs;
  const auto chunk = static_cast<double>(std::max<std::int64_t>(1, load.chunk_tiles));
  const double chunks = std::ceil(all_tiles / chunk), tiles = std::min(all_tiles, chunk);
  const bool running = chunks > 1;
  // Accesses of softmax: maxima over the tiles, subtraction and exponential of each, sums over the tiles, two
  // reductions; then the reciprocal and the product with each slab of values. Masks add two operations per tile, each
  // further chunk the new maximum and the rescaling of sum and output.
  // Of smoothed values, the array adds up the probabilities instead: as many products again, and their write-out; rows
  // copy these sums, and get factors and centres.
  const bool shares = adds_shares(device);
  const double row = (shares ? 6 - 3 * (tiles - 1) : 0) + (tiles > 1 ? 8 * tiles - 1 : 6) + (6 * masked + 2) / chunks +
                     2 * out_slabs + (running ? 14 : 0);
  const double chain = softmax_chain(device.latency, tiles, running);
  const double vector = 4 * tiles + (running ? 8 : 0) + out_slabs + 1;
  double time = 0, blocks = 0;
  for (std::int64_t first = 0; first < load.rows; first += most) {
    const std::int64_t real = std::min(most, load.rows - first), padded = round_up(real, array.blen);
    const std::int64_t columns = (is_wide ? array.mlen : array.hlen) / array.blen;
    const double instruction = static_cast<double>(padded / array.blen * columns) * array.tile_cycles;
    const double scores = groups * tiles, products = (shares ? 3 : 2) * scores * pieces,
                 tiles_cycles = products * instruction;
    const double operands = products * std::min(static_cast<double>(padded), std::floor(instruction));
    const double write_outs = (scores + (shares ? 2 : 1) * value_groups) * static_cast<double>(padded * columns);
    const double accesses = operands + write_outs + row * static_cast<double>(real);
    const auto n = static_cast<double>(real);
    const double block = std::max({tiles_cycles, accesses / ports, chain * n, vector * n / 2,
                                   running ? 0 : value_round(device, tiles_cycles / 2, n)});
    time += block * chunks;
    // A later chunk rescales the results so far: it waits for the products of the chunk before.
    time += (chunks - 1) * (tiles_cycles / 2 + result_delay(array));
    blocks += chunks;
    work.array += tiles_cycles * chunks * units;
    work.accesses += accesses * chunks * units;
  }
  const std::int64_t lanes = o.kv_heads * (is_wide ? o.head_dim : array.hlen);
  work.cycles = time * units;
  work.unit_cycles = time;
  work.key_lanes = static_cast<double>(round_up(load.keys, tile)) * static_cast<double>(round_up(lanes, array.vlen));
  // A chunk's keys are loaded again for every block of rows and slab of queries.
  work.key_loads = running ? blocks / chunks : 1;
  work.smoothing = smoothing_cycles(device, load, static_cast<double>(ceil_div(lanes, array.vlen)));
  work.jobs = static_cast<double>(is_wide ? o.kv_heads : ceil_div(lanes, array.vlen));
  return work;
}

}  // namespace dllm::npu
