#include "test/column.h"

#include <Vcolumn_a4w4.h>
#include <Vcolumn_a8w4.h>
#include <Vcolumn_a8w4_single.h>
#include <Vcolumn_a8w8.h>
#include <Vcolumn_fp4.h>
#include <Vcolumn_fp6.h>
#include <Vcolumn_fp8.h>
#include <Vcolumn_fp8w4.h>
#include <fmt/format.h>

#include <memory>

#include "npu_core/machine/fixed_product.h"
#include "npu_core/machine/matrix_unit.h"
#include "numerics/mx.h"
#include "test/vectors.h"

namespace dllm::rtl {
namespace {

constexpr std::int16_t kNone = -30000;

/// Bits of a port of any width.
template <class Port>
void set_bits(Port& port, int at, int width, std::uint64_t value) {
  for (int i = 0; i < width; ++i) {
    const bool bit = value >> i & 1;
    if constexpr (std::is_integral_v<Port>) {
      const auto mask = static_cast<Port>(Port{1} << (at + i));
      port = static_cast<Port>(bit ? port | mask : port & static_cast<Port>(~mask));
    } else {
      const auto mask = std::uint32_t{1} << ((at + i) % 32);
      std::uint32_t& word = port[static_cast<std::size_t>((at + i) / 32)];
      word = bit ? word | mask : word & ~mask;
    }
  }
}

/// One operand of an instruction: codes [rows][k], scales and marks [rows][groups].
struct Operand {
  std::vector<std::uint32_t> codes;
  std::vector<int> scales;
  std::vector<bool> zero, nan;
};

class Stimulus {
 public:
  Stimulus(const ColumnModel& model, std::uint64_t seed) : model_(model), random_(seed) {}
  Vectors& random() { return random_; }

  Operand operand(const MxFormat& format, int rows) {
    const int groups = model_.klen / model_.group;
    Operand o;
    const std::uint32_t spread = random_.one_in(4) ? 60 : 1 + random_.below(12);
    const int base = static_cast<int>(random_.one_in(3) ? random_.below(255 - spread) : 110 + random_.below(20));
    for (int row = 0; row < rows; ++row)
      for (int g = 0; g < groups; ++g) {
        const bool empty = random_.one_in(12);
        bool any = false, special = false;
        for (int i = 0; i < model_.group; ++i) {
          std::uint32_t code = empty ? 0 : static_cast<std::uint32_t>(random_.bits()) & ((1u << format.bits()) - 1);
          // One code in 128 is a NaN; more of them would hide the rest of the rows.
          if (mx_is_special(format.element, code) && !random_.one_in(16)) code ^= 1;
          any = any || mx_fixed(format.element, code) != 0;
          special = special || mx_is_special(format.element, code);
          o.codes.push_back(code);
        }
        const bool nan = random_.one_in(400);
        o.scales.push_back(nan ? kMxScaleNan : base + static_cast<int>(random_.below(spread)));
        o.zero.push_back(!any);
        o.nan.push_back(nan || special);
      }
    return o;
  }

 private:
  ColumnModel model_;
  Vectors random_;
};

template <class Model>
class Column {
 public:
  explicit Column(const ColumnModel& shape)
      : shape_(shape),
        a_(*mx_format_from_name(shape.a)),
        w_(*mx_format_from_name(shape.w)),
        stimulus_(shape, 21),
        model_(std::make_unique<Model>()) {
    model_->rst_ni = 0;
    tick();
    model_->rst_ni = 1;
    tick();
  }

  ColumnResult run(std::uint64_t outputs) {
    ColumnResult result;
    const auto window = npu::matrix_window(a_, w_, 15);
    while (result.outputs < outputs) {
      npu::Accumulator sum;
      sum.open(npu::Accumulator::Mode::kFixed, 1, static_cast<std::uint32_t>(shape_.blen), 1, window->guard,
               -a_.fraction() - w_.fraction());
      const std::uint32_t instructions = 1 + stimulus_.random().below(3);
      for (std::uint32_t i = 0; i < instructions; ++i) instruction(sum, window->narrow);
      drain(sum, static_cast<int>(instructions), result);
    }
    return result;
  }

 private:
  void tick() {
    model_->clk_i = 1;
    model_->eval();
    model_->clk_i = 0;
    model_->eval();
    ++cycle_;
  }

  /// Consecutive terms, one per cycle.
  void instruction(npu::Accumulator& sum, bool narrow) {
    const Operand a = stimulus_.operand(a_, shape_.blen), w = stimulus_.operand(w_, 1);
    const int groups = shape_.klen / shape_.group;
    for (int k = 0; k < shape_.klen; ++k) {
      model_->valid_i = 1;
      model_->first_i = k == 0;
      if (k == 0) began_ = cycle_;
      for (int row = 0; row < shape_.blen; ++row) {
        set_bits(model_->a_i, row * a_.bits(), a_.bits(), a.codes[static_cast<std::size_t>(row * shape_.klen + k)]);
        for (int g = 0; g < groups; ++g) {
          const auto at = static_cast<std::size_t>(row * groups + g);
          set_bits(model_->a_scales_i, static_cast<int>(at) * 8, 8, static_cast<std::uint64_t>(a.scales[at]));
          set_bits(model_->a_zeros_i, static_cast<int>(at), 1, a.zero[at]);
        }
      }
      set_bits(model_->w_i, 0, w_.bits(), w.codes[static_cast<std::size_t>(k)]);
      for (int g = 0; g < groups; ++g) {
        set_bits(model_->w_scales_i, g * 8, 8, static_cast<std::uint64_t>(w.scales[static_cast<std::size_t>(g)]));
        set_bits(model_->w_zeros_i, g, 1, w.zero[static_cast<std::size_t>(g)]);
      }
      if (model_->done_o) done_ = cycle_;
      tick();
    }
    model_->valid_i = 0;
    add(a, w, narrow, sum);
  }

  void add(const Operand& a, const Operand& w, bool narrow, npu::Accumulator& sum) const {
    npu::FixedProduct p;
    p.m = shape_.blen;
    p.n = 1;
    p.k = shape_.klen;
    p.group = shape_.group;
    p.narrow = narrow ? 1 : 0;
    const auto exponents = [](const Operand& o, std::vector<std::int16_t>& out) {
      for (std::size_t i = 0; i < o.scales.size(); ++i)
        out.push_back(o.zero[i] || o.nan[i] ? kNone : static_cast<std::int16_t>(o.scales[i] - kMxScaleBias));
    };
    for (const std::uint32_t code : a.codes) p.a.push_back(static_cast<std::int32_t>(mx_fixed(a_.element, code)));
    for (const std::uint32_t code : w.codes) p.w.push_back(static_cast<std::int32_t>(mx_fixed(w_.element, code)));
    exponents(a, p.ea);
    exponents(w, p.ew);
    p.a_nan.assign(static_cast<std::size_t>(shape_.blen), 0);
    for (std::size_t i = 0; i < a.nan.size(); ++i)
      if (a.nan[i]) p.a_nan[i / (a.nan.size() / p.a_nan.size())] = 1;
    p.w_nan.assign(1, 0);
    for (const bool nan : w.nan)
      if (nan) p.w_nan[0] = 1;
    npu::add_fixed_product(p, sum, 0, 1);
  }

  /// Row 0 is converted as early as the skew permits, so that the last row is converted in the cycle in which it is
  /// done.
  void drain(const npu::Accumulator& sum, int instructions, ColumnResult& result) {
    const int start = cycle_ + 2 - 1;  // row 0: its last term was a cycle ago, then alignment
    int row = 0;
    for (int guard = 0; row < shape_.blen && guard < 4 * shape_.blen + 8; ++guard) {
      model_->drain_i = cycle_ == start;
      model_->eval();
      if (model_->done_o) done_ = cycle_;
      if (model_->valid_o) {
        const npu::Bf16 want = sum.lane(npu::LaneFormat::kBf16, static_cast<std::size_t>(row));
        ++result.outputs;
        if (model_->bf16_o != want && result.wrong++ == 0)
          result.first = fmt::format("row {} after {} instructions: {:04x}, not {:04x}", row, instructions,
                                     static_cast<unsigned>(model_->bf16_o), want);
        ++row;
      }
      tick();
    }
    model_->drain_i = 0;
    const int cycles = done_ - began_ + 1;  // of the last instruction
    if (result.cycles == 0) result.cycles = cycles;
    if (result.cycles != cycles || row != shape_.blen) result.cycles = -1;
  }

  ColumnModel shape_;
  MxFormat a_, w_;
  Stimulus stimulus_;
  std::unique_ptr<Model> model_;
  int cycle_ = 0, began_ = 0, done_ = 0;
};

template <class Model>
ColumnResult check(std::size_t index, std::uint64_t outputs) {
  return Column<Model>(column_models()[index]).run(outputs);
}

}  // namespace

const std::vector<ColumnModel>& column_models() {
  static const std::vector<ColumnModel> models = {
      {"a8w4", "mxint8:8:ocp", "mxint4:8:ocp", 8, 8, 8},
      {"a8w4_single", "mxint8:8:ocp", "mxint4:8:ocp", 4, 8, 1},
      {"a8w8", "mxint8:8:ocp", "mxint8:8:ocp", 2, 16, 8},
      {"a4w4", "mxint4:8:plena", "mxint4:8:plena", 2, 8, 8},
      {"fp4", "mxfp4_e2m1:8:ocp", "mxfp4_e2m1:8:ocp", 2, 8, 8},
      {"fp6", "mxfp6_e2m3:8:ocp", "mxfp6_e3m2:8:ocp", 2, 8, 8},
      {"fp8w4", "mxfp8_e4m3:8:ocp", "mxint4:8:ocp", 2, 16, 8},
      {"fp8", "mxfp8_e4m3:8:ocp", "mxfp8_e4m3:8:ocp", 2, 8, 8},
  };
  return models;
}

ColumnResult check_column(std::size_t index, std::uint64_t outputs) {
  static constexpr ColumnResult (*kChecks[])(std::size_t, std::uint64_t) = {
      check<Vcolumn_a8w4>, check<Vcolumn_a8w4_single>, check<Vcolumn_a8w8>,  check<Vcolumn_a4w4>,
      check<Vcolumn_fp4>,  check<Vcolumn_fp6>,         check<Vcolumn_fp8w4>, check<Vcolumn_fp8>};
  return kChecks[index](index, outputs);
}

}  // namespace dllm::rtl
