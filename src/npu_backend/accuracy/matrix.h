#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "model/weights.h"
#include "npu_backend/accuracy/window_kernel.h"
#include "npu_compiler/compiler/layout.h"

namespace dllm::npu::accuracy {

/// Rows of lanes, kept from step to step to avoid an allocation for a shape that occurred before.
struct LaneRows {
  std::int64_t rows = 0, stride = 0;
  std::vector<float> data;

  /// Lanes without a column stay 0; lanes with a column keep the values of an earlier step.
  void reset(std::int64_t count, std::int64_t lanes) {
    if (lanes != stride) data.clear();
    rows = count;
    stride = lanes;
    data.resize(std::max(data.size(), static_cast<std::size_t>(count * lanes)));
  }
  void clear() { std::fill(data.begin(), data.end(), 0.0f); }
  float* row(std::int64_t r) { return data.data() + r * stride; }
  const float* row(std::int64_t r) const { return data.data() + r * stride; }
  std::span<float> lanes(std::int64_t r) { return {row(r), static_cast<std::size_t>(stride)}; }
  std::span<const float> lanes(std::int64_t r) const { return {row(r), static_cast<std::size_t>(stride)}; }
};

/// Lanes of a row of a value: a multiple of every block, without the unit's padding, which is zero and adds nothing.
inline std::int64_t row_lanes(const LaneMap& map) { return round_up(map.used(), 64); }

/// The formats of a product and how its terms are added.
struct ProductFormats {
  OperandFormat a, w;
  WindowRule rule;
  int mlen = 0;  ///< lanes of an instruction
};

/// The contraction of a product: the groups of lanes that hold a column, in their order, and the ends of instructions.
class Contraction {
 public:
  Contraction() = default;
  Contraction(const LaneMap& in, const ProductFormats& formats);

  std::int64_t group() const { return group_; }
  std::int64_t groups() const { return static_cast<std::int64_t>(lanes_.size()); }
  std::int64_t terms() const { return groups() * group_; }
  std::span<const std::int32_t> ends() const { return ends_; }
  /// The elements of both sides are bytes, and groups have a multiple of four.
  bool bytes() const { return bytes_; }
  /// Terms and exponents (by group) of a quantized row; `block`: of its format.
  void gather(const Operand& row, int block, float* terms, std::int16_t* exponents) const;

 private:
  std::int64_t group_ = 1;
  bool bytes_ = false;
  std::vector<std::int64_t> lanes_;  ///< first lane of each group
  struct Run {
    std::int64_t lane, terms;
  };
  std::vector<Run> runs_;  ///< the same as runs of adjacent lanes
  std::vector<std::int32_t> ends_;
};

/// The rows of one side, quantized and gathered.
struct OperandRows {
  std::int64_t rows = 0, terms = 0, groups = 0;
  std::vector<float> a;
  std::vector<std::int16_t> exponents;
  std::vector<std::uint8_t> bytes;  ///< see WindowProduct::a_bytes; empty: none

  /// Fills in the bytes of a row, if there are any.
  void lay_bytes(std::int64_t row);

  void reset(std::int64_t count, const Contraction& contraction);
  void copy_row(const OperandRows& from, std::int64_t source, std::int64_t target);
};

/// A weight in panels of 16 outputs.
class Matrix {
 public:
  /// Rows [first, first + outputs) of `weight`; a weight that is stored in the wanted format keeps its values (of MX
  /// formats see keeps_codes()).
  static Matrix pack(const WeightView& weight, std::int64_t first, std::int64_t outputs, const LaneMap& in,
                     const ProductFormats& formats, ThreadPool& pool);

  std::int64_t outputs() const { return outputs_; }
  std::int64_t panels() const { return ceil_div(outputs_, kPanel); }
  const Contraction& contraction() const { return contraction_; }
  /// sums[row][kPanel] of one panel.
  void multiply(const OperandRows& x, std::int64_t panel, double* sums) const;

 private:
  /// What an element takes. An 8B model in float32 would need 30 GB; float formats of weights have 16 bits.
  enum class Storage : std::uint8_t { kNarrow, kF32, kF16, kBF16 };
  /// Where a panel of a weight comes from.
  struct Source {
    const WeightView& weight;
    std::int64_t first;  ///< row of the weight
    const LaneMap& in;
    const ProductFormats& formats;
    bool stored;
  };
  /// False: an element is not exact in `storage_`.
  bool pack_panels(const Source& source, ThreadPool& pool);
  bool pack_panel(const Source& source, std::int64_t panel);
  bool put(std::size_t at, float value);
  /// Of kFloat, as float32.
  const float* floats(std::int64_t panel) const;
  void lay_bytes(std::int64_t panel);

  std::int64_t outputs_ = 0;
  WindowRule rule_;
  Contraction contraction_;
  Storage storage_ = Storage::kF32;
  std::vector<std::int16_t> narrow_, exponents_;
  std::vector<std::uint16_t> half_;
  std::vector<std::int8_t> bytes_;
  std::vector<std::int32_t> offsets_;
  std::vector<float> wide_;
};

/// A row of a weight as float32.
std::vector<float> weight_row(const WeightView& weight, std::int64_t row);

}  // namespace dllm::npu::accuracy
