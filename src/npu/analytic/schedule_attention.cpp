#include "npu/analytic/schedule_attention.h"

#include <algorithm>
#include <cmath>

#include "base/integers.h"
#include "npu/analytic/schedule_shapes.h"

namespace dllm::npu {

double result_delay(const Device::Array& array) {
  return static_cast<double>(3 * array.blen + log2_exact(array.mlen / array.blen));
}

double queue_lead(const Device::Array& array, double queue, double k_tiles) {
  const double tiles = queue * k_tiles / (k_tiles + 1) * array.tile_cycles;
  const double write_outs = std::ceil(queue / (k_tiles + 1)) * k_tiles * array.tile_cycles;
  return std::max(0.0, std::min(tiles, write_outs - result_delay(array) + static_cast<double>(array.blen)));
}

namespace {

/// From one block's products with V to the next one's: these are issued after the results have been divided by their
/// sums. The products, the delay, and row by row the write-out, then the reciprocal and the product of four rows at a
/// time.
double value_round(const Device& device, double products, double rows) {
  const Device::Latency& t = device.latency;
  const double divided = 1 + static_cast<double>(t.vector_reci + 2 * t.vector_mul + 4) / 4;
  return products + result_delay(device.array) + divided * rows;
}

}  // namespace

AttentionWork attention_work(const Device& device, const op::Attention& o, const AttentionLoad& load) {
  const Device::Array& array = device.array;
  const Device::Latency& t = device.latency;
  const auto ports = static_cast<double>(device.sram.vector_ports);
  AttentionWork work;
  const bool is_wide = o.head_dim > array.hlen;
  const std::int64_t tile = is_wide ? array.vlen : array.hlen;
  const std::int64_t most = round_up(std::min<std::int64_t>(128, array.mlen), array.blen);
  const auto all_tiles = static_cast<double>(ceil_div(load.keys, tile));
  const double masked = load.keys % tile == 0 ? 0 : 1;
  // Per block: lane groups of scores, of values, pieces of a contraction; slabs of outputs.
  const double groups = static_cast<double>(array.vlen / array.mlen);
  const double pieces = is_wide ? static_cast<double>(o.head_dim / array.mlen) : 1;
  const double value_groups = is_wide ? pieces : groups;
  const double out_slabs = is_wide ? static_cast<double>(o.head_dim / array.vlen) : 1;
  const double units = is_wide ? static_cast<double>(o.heads) : load.query_slabs;
  // Scores of two blocks may take an eighth of vector SRAM; more keys are processed in chunks.
  const std::int64_t kv_rows = (device.sram.matrix_tiles * array.mlen - 2 * load.weight_buffer_rows) / 2;
  const std::int64_t kv_pieces = is_wide ? o.head_dim / array.mlen : array.vlen / array.mlen;
  const auto chunk = static_cast<double>(
      std::clamp<std::int64_t>(std::min(device.sram.vector_rows / 16 / most, kv_rows / (2 * tile * kv_pieces)), 1, 64));
  const double chunks = std::ceil(all_tiles / chunk), tiles = std::min(all_tiles, chunk);
  const bool running = chunks > 1;
  // Accesses of softmax: maxima over the tiles, subtraction and exponential of each, sums over the tiles, two
  // reductions; then the reciprocal and the product with each slab of values. Masks add two operations per tile, each
  // further chunk the new maximum and the rescaling of sum and output.
  const double row = (tiles > 1 ? 8 * tiles - 1 : 6) + (6 * masked + 2) / chunks + 2 * out_slabs + (running ? 14 : 0);
  // In sequence: the maxima, the segment's maximum, subtraction, exponential, the sums. A row of a long softmax runs
  // alone; others run in pairs.
  const double chain =
      ((tiles - 1) * static_cast<double>(t.vector_max + t.vector_add) +
       static_cast<double>(t.vector_max + t.vector_add + t.vector_exp + t.vector_mul) +
       (running ? static_cast<double>(t.vector_max + t.vector_add + t.vector_exp + 2 * t.vector_mul + t.vector_sum)
                : 0)) /
      (running ? 1 : 2);
  const double vector = 4 * tiles + (running ? 8 : 0) + out_slabs + 1;
  double time = 0, blocks = 0;
  for (std::int64_t first = 0; first < load.rows; first += most) {
    const std::int64_t real = std::min(most, load.rows - first), padded = round_up(real, array.blen);
    const std::int64_t columns = (is_wide ? array.mlen : array.hlen) / array.blen;
    const double instruction = static_cast<double>(padded / array.blen * columns) * array.tile_cycles;
    const double scores = groups * tiles, products = 2 * scores * pieces, tiles_cycles = products * instruction;
    const double operands = products * std::min(static_cast<double>(padded), std::floor(instruction));
    const double write_outs = (scores + value_groups) * static_cast<double>(padded * columns);
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
  work.jobs = static_cast<double>(is_wide ? o.kv_heads : ceil_div(lanes, array.vlen));
  return work;
}

}  // namespace dllm::npu
