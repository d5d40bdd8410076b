#include "npu_compiler/compiler/weights_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/to_size.h"
#include "graph/rope.h"
#include "npu_compiler/compiler/stored_codes.h"
#include "npu_core/machine/tiles.h"
#include "numerics/packed.h"
#include "numerics/tensor_type.h"

namespace dllm::npu {
namespace {

std::vector<float> decode_rows(const WeightView& view, std::int64_t first, std::int64_t count) {
  const Codec& format = codec(view.type);
  const std::int64_t width = view.shape[0];
  std::vector<float> values(to_size(width * count));
  format.dequantize(view.data.data() + first * format.row_bytes(width), values.data(), width * count);
  return values;
}

void write_lanes(LaneFormat format, const std::vector<float>& lanes, std::byte* to) {
  for (const float value : lanes) {
    const Bf16 bits = f32_to_lane(format, value);
    std::memcpy(to, &bits, 2);
    to += 2;
  }
}

/// Makes the rows of a matrix in HBM.
class RowEncoder {
 public:
  RowEncoder(const WeightPlace& place, const WeightView& view, const MachineConfig& m)
      : place_(place),
        view_(view),
        format_(place.tensor.format),
        lanes_(place.matrix.k_tiles * m.mlen),
        part_lanes_(m.mlen / place.matrix.parts),
        stored_(part_lanes_ % format_.block == 0 && keeps_codes(view, place.in, format_)),
        row_of_(to_size(place.matrix.n * place.matrix.parts), -1) {
    for (std::int64_t column = 0; column < place.out.width; ++column) row_of_[to_size(place.out.lane(column))] = column;
  }

  /// Row n of an expert's matrix: the outputs n of all parts, each in its own lanes.
  const LaneCodes& row(std::int64_t expert, std::int64_t n) {
    const std::int64_t parts = place_.matrix.parts;
    row_.reset(format_, lanes_);
    if (!stored_) values_.assign(to_size(lanes_), 0.0f);
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t output = row_of_[to_size(part * place_.matrix.n + n)];
      if (output < 0) continue;
      const std::int64_t first = part * part_lanes_, from = expert * place_.out.width + output;
      if (stored_) {
        lay_codes(view_, from, place_.in, format_, first, row_);
        continue;
      }
      const std::vector<float> values = decode_rows(view_, from, 1);
      for (std::int64_t k = 0; k < place_.in.width; ++k)
        values_[to_size(first + place_.in.lane(k))] = values[to_size(k)];
    }
    if (!stored_) mx_quantize(format_, values_.data(), values_.size(), row_.codes.data(), row_.scales.data());
    return row_;
  }

 private:
  const WeightPlace& place_;
  const WeightView& view_;
  const MxFormat& format_;
  std::int64_t lanes_, part_lanes_;
  bool stored_;
  std::vector<std::int64_t> row_of_;  ///< the output in each lane
  std::vector<float> values_;
  LaneCodes row_;
};

}  // namespace

void write_matrix(const WeightPlace& place, const WeightView& view, const MachineConfig& m, std::byte* hbm) {
  if (tile_element(view.type)) {
    std::ranges::copy(view.data, hbm + place.tensor.base);
    return;
  }
  const MatrixShape& s = place.matrix;
  const MxFormat& format = place.tensor.format;
  const auto mlen = to_size(m.mlen);
  std::byte* elements = hbm + place.tensor.base;
  std::byte* scale_bytes = elements + place.tensor.scale_offset;
  const WeightTiles tiles(m, format);
  RowEncoder encoder(place, view, m);
  for (std::int64_t i = 0; i < place.experts * s.n; ++i) {
    const std::int64_t expert = i / s.n, n = i % s.n;
    const LaneCodes& row = encoder.row(expert, n);
    const std::int64_t panel = n / s.panel, rows = s.panel_lanes(panel);
    for (std::int64_t tile = 0; tile < s.k_tiles; ++tile) {
      // [expert][panel][tile][row][MLEN]
      const auto at =
          to_size(expert * place.expert_stride + (panel * s.panel * s.k_tiles + tile * rows + n % s.panel) * m.mlen);
      const std::size_t first = to_size(tile) * mlen;
      std::byte* codes = elements + (format.packed() ? tiles.codes_at(at / mlen) : format.element_bytes(at));
      std::byte* scales =
          format.packed() ? elements + tiles.scales_at(at / mlen) : scale_bytes + format.scale_bytes(at);
      mx_pack(format.bits(), row.codes.data() + first, mlen, codes);
      std::copy_n(reinterpret_cast<const std::byte*>(row.scales.data()) + format.scale_bytes(first),
                  format.scale_bytes(mlen), scales);
    }
  }
}

namespace {

void write_rows(const WeightPlace& place, const WeightView& view, const ModelLayout& layout, std::byte* hbm) {
  const std::int64_t lanes = layout.slabs(place.out) * layout.machine.vlen;
  const std::int64_t count = place.use == WeightUse::kTable ? view.shape[1] : 1;
  for (std::int64_t r = 0; r < count; ++r) {
    const std::vector<float> values = decode_rows(view, r, 1);
    std::vector<float> row(to_size(lanes), 0.0f);
    for (std::size_t i = 0; i < values.size(); ++i)
      row[to_size(place.out.lane(static_cast<std::int64_t>(i)))] = values[i];
    write_lanes(layout.machine.lanes, row, hbm + place.tensor.base + to_size(r * lanes) * 2);
  }
}

/// A head's gain in every section of HLEN lanes, or in as many rows as a longer head needs.
void write_head_row(const WeightPlace& place, const WeightView& view, const MachineConfig& m, std::byte* hbm) {
  const std::vector<float> values = decode_rows(view, 0, 1);
  const auto slot = to_size(place.out.hlen);
  std::vector<float> row(std::max(slot, to_size(m.vlen)), 0.0f);
  for (std::size_t head = 0; head < row.size(); head += slot)
    for (std::size_t j = 0; j < values.size(); ++j)
      row[head + to_size(place.out.lane_in_head(static_cast<std::int64_t>(j)))] = values[j];
  write_lanes(m.lanes, row, hbm + place.tensor.base);
}

}  // namespace

std::vector<Bf16> rope_row(const RopePlace& rope, const MachineConfig& machine, std::span<const float> factors,
                           Position position) {
  const auto vlen = to_size(machine.vlen), segment = to_size(rope.segment);
  const op::Rope& spec = rope.spec;
  std::vector<Bf16> rows(to_size(rope.tables) * vlen, 0);
  for (std::size_t lane = 0; lane < vlen; ++lane) rows[lane] = lane_one(machine.lanes);  // lanes that do not rotate
  const std::int64_t half = spec.dims / 2;
  const std::vector<float> frequencies = rope_frequencies(spec, factors);
  const double magnitude = rope_magnitude(spec, position);
  for (std::int64_t j = 0; j < half; ++j) {
    const auto angle = static_cast<double>(static_cast<float>(position) * frequencies[to_size(j)]);
    const double turned = magnitude * std::sin(angle);
    const Bf16 cos = f64_to_lane(machine.lanes, magnitude * std::cos(angle)), sin = f64_to_lane(machine.lanes, turned),
               minus = f64_to_lane(machine.lanes, -turned);
    if (rope.halves) {
      rows[to_size(j)] = cos;
      rows[vlen + to_size(j)] = sin;
      continue;
    }
    // In lanes, both layouts are halves (LaneMap).
    const auto low = to_size(j), high = to_size(j + half);
    for (std::size_t head = 0; head < vlen; head += segment) {
      rows[head + low] = rows[head + high] = cos;
      rows[vlen + head + high] = sin;                                   // from the lane below
      rows[(rope.tables == 3 ? 2 * vlen : vlen) + head + low] = minus;  // from the lane above
    }
  }
  return rows;
}

Expected<ModelLayout> make_layout(const Graph& graph, const Weights& weights, const MachineConfig& machine,
                                  std::int64_t positions) {
  if (weights.size() != graph.weights.size())
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("{} weights for a graph that reads {}", weights.size(), graph.weights.size()), "", ""};
  std::vector<bool> present;
  for (const WeightView& view : weights) present.push_back(view.present());
  return make_layout(graph, present, machine, positions);
}

void write_weights(const Graph& graph, const ModelLayout& layout, const Weights& weights, std::byte* hbm) {
  (void)graph;
  for (const WeightPlace& place : layout.weights) {
    const WeightView& view = weights[to_size(place.weight)];
    switch (place.use) {
      case WeightUse::kMatrix:
        write_matrix(place, view, layout.machine, hbm);
        break;
      case WeightUse::kNumber:
        write_lanes(layout.machine.lanes,
                    std::vector<float>(to_size(layout.machine.vlen), decode_rows(view, 0, 1).front()),
                    hbm + place.tensor.base);
        break;
      case WeightUse::kHeadRow:
        write_head_row(place, view, layout.machine, hbm);
        break;
      case WeightUse::kTable:
      case WeightUse::kRow:
        write_rows(place, view, layout, hbm);
        break;
    }
  }
  for (const RopePlace& rope : layout.ropes) {
    std::vector<float> factors;
    if (rope.spec.factors != kNoId) factors = decode_rows(weights[to_size(rope.spec.factors)], 0, 1);
    std::byte* to = hbm + rope.tensor.base;
    for (std::int64_t p = 0; p < layout.positions; ++p) {
      const std::vector<Bf16> rows = rope_row(rope, layout.machine, factors, static_cast<Position>(p));
      std::memcpy(to, rows.data(), 2 * rows.size());
      to += 2 * rows.size();
    }
  }
}

}  // namespace dllm::npu
