// One pass over the logits. A unit is a chunk of a position; its maximum is computed while the previous unit's
// exponentials are summed, and meanwhile later units are loaded into a ring of buffers. With several chunks per
// position the sum is rescaled when the running maximum rises:
//
//   m' = max(m, max z)      s' = s e^(m - m') + sum e^(z - m')
//
// The vector unit then starts a subtraction together with a maximum, and an exponential together with a sum, each
// chained to the one before: three cycles per vector, limited by the front end's six instructions. Registers:
//   gp1 source of transfers   gp2 entry of the ring   gp3, gp4 rows whose maximum / sum is next   gp5, gp6 arg-max
//   gp7 predicted   gp8 index of the first lane   gp9 confidence   gp10 this unit's buffer   gp11 scratch
//   gp12 vectors   gp13 positions   gp14 batch items   gp15 steps
//   f1, f3 maxima   f2, f5 sums   f4, f6 scratch
//
// With one chunk per position and an even block, registers of a pair (maxima, arg-max, sums) alternate; otherwise moves
// copy them, at a few cycles per unit.
//
// With draws, V_RED_DRAW searches the same vectors as the maximum. Confidence is e^(z - m) / s for the drawn token's
// logit z. Then f5 is the key, f7 z, f4 the finished position's z, f6 1/T, and gp6 the position.

#include <algorithm>
#include <bit>

#include "npu_core/machine/arithmetic.h"
#include "npu_core/sampling/emitter.h"

namespace dllm::npu::sampling {
namespace {

constexpr std::int64_t kUnroll = 8;  ///< vectors per trip of the inner loop
constexpr std::int64_t kEarly = 4;   ///< after this many vectors the last unit's arg-max is ready without waiting

class OnePass {
 public:
  explicit OnePass(const SamplingKernel& kernel)
      : k_(kernel),
        at_(kernel.layout),
        vlen_(kernel.machine.vlen),
        rows_(kernel.shape.chunk / vlen_),
        chunks_(at_.vectors / rows_),
        paired_(chunks_ == 1 && kernel.shape.block % 2 == 0 && !kernel.shape.draws()) {}

  std::string text() {
    e_.line(
        "; sampling in one pass: batch {}, block {}, vocabulary {} in {} chunks of {} vectors, {} buffers, {} steps",
        k_.shape.batch, k_.shape.block, k_.shape.vocab, chunks_, rows_, at_.buffers, k_.shape.steps);
    setup();
    e_.loop("gp15", k_.shape.steps, [&] { step(); });
    e_.line("C_BREAK");
    return e_.take();
  }

 private:
  struct Unit {
    std::int64_t chunk = 0;
    bool odd = false;       ///< second position of a pair
    bool transfer = true;   ///< a later unit remains to be loaded
    bool successor = true;  ///< there is a next unit, whose maximum is computed
  };
  std::int64_t scratch(std::int64_t word) const { return at_.int_words - 32 + word; }
  std::int64_t mask_pointer() const { return scratch(16); }
  std::int64_t token_pointer() const { return scratch(17); }
  std::int64_t count_pointer() const { return scratch(18); }
  std::int64_t buffer_rows() const { return (rows_ + k_.shape.preload - 1) / k_.shape.preload * k_.shape.preload; }

  void setup() {
    e_.region("setup", [&] {
      load_masks(e_, k_);
      e_.line("li gp3, {}", at_.counts);
      e_.line("S_ST_INT gp3, gp0, {}", count_pointer());
      const std::int64_t first = static_cast<std::int64_t>(at_.vram_rows) - at_.buffers * buffer_rows();
      for (std::int64_t i = 0; i < at_.buffers; ++i) {
        e_.line("li gp3, {}  ; ring entry {}: the next entry, the buffer", scratch(2 * ((i + 1) % at_.buffers)), i);
        e_.line("S_ST_INT gp3, gp0, {}", scratch(2 * i));
        e_.line("li gp3, {}", (first + i * buffer_rows()) * vlen_);
        e_.line("S_ST_INT gp3, gp0, {}", scratch(2 * i + 1));
      }
      if (k_.shape.draws()) set_up_draws();
    });
  }

  void set_control(const char* name, std::int64_t value) {
    e_.line("li gp3, {}", value);
    e_.line("C_SET_CSR gp3, {}", name);
  }

  void set_up_draws() {
    const auto bits = std::bit_cast<std::uint64_t>(k_.shape.temperature);
    set_control("draw_temperature_low", static_cast<std::int64_t>(bits & 0xffffffffu));
    set_control("draw_temperature_high", static_cast<std::int64_t>(bits >> 32));
    set_control("draw_tokens", k_.shape.vocab);
    set_control("draw_precision", static_cast<std::int64_t>(k_.shape.precision));
    for (const auto& [word, name] :
         {std::pair{0, "draw_seed_low"}, {1, "draw_seed_high"}, {2, "draw_step"}, {3, "draw_except"}}) {
      e_.line("S_LD_INT gp3, gp0, {}", at_.draw + static_cast<std::uint32_t>(word));
      e_.line("C_SET_CSR gp3, {}", name);
    }
    e_.line("S_LI_FP f7, 0.0");
    e_.line("S_LI_FP f6, 0x{:04x}  ; 1/T", f64_to_lane(k_.machine.lanes, 1 / k_.shape.temperature));
  }

  /// The next unit of the tensor into the buffer at gp10; gp11 is scratch.
  void load() {
    const std::int64_t per = k_.shape.preload;
    if (rows_ <= per) {
      e_.line("H_PREFETCH_V gp10, gp1, a1, 0, 0");
      e_.line("S_ADDI_INT gp1, gp1, {}", rows_ * vlen_);
      return;
    }
    e_.line("S_ADD_INT gp11, gp10, gp0");
    e_.line("S_ADD_INT gp3, gp1, gp0");
    e_.loop("gp12", (rows_ + per - 1) / per, [&] {
      e_.line("H_PREFETCH_V gp11, gp3, a1, 0, 0");
      e_.line("S_ADDI_INT gp11, gp11, {}", per * vlen_);
      e_.line("S_ADDI_INT gp3, gp3, {}", per * vlen_);
    });
    e_.line("S_ADDI_INT gp1, gp1, {}", rows_ * vlen_);
  }

  const char* maximum(bool odd) const { return odd ? "f3" : "f1"; }
  const char* index(bool odd) const { return odd ? "gp6" : "gp5"; }

  void find(bool odd) {
    if (paired_) {
      // A row is its own index: the buffer's address is subtracted once, at the end.
      e_.line("V_RED_MAX_IDX {}, gp3, gp3, {}", index(odd), maximum(odd));
      e_.line("S_ADDI_INT gp3, gp3, {}", vlen_);
      return;
    }
    if (k_.shape.draws()) {
      e_.line("V_RED_MAX f1, gp3, 0");
      e_.line("V_RED_DRAW gp5, gp3, gp8, f5, f7, gp6");
    } else {
      e_.line("V_RED_MAX_IDX gp5, gp3, gp8, f1");
    }
    e_.line("S_ADDI_INT gp3, gp3, {}", vlen_);
    e_.line("S_ADDI_INT gp8, gp8, {}", vlen_);
  }

  void vector(const Unit& unit) {
    const char* max = paired_ ? maximum(unit.odd) : "f3";
    e_.line("V_SUB_VF gp4, gp4, {}, 0, 0", max);
    if (tempered()) e_.line("V_MUL_VF gp4, gp4, f6, 0");
    if (unit.successor) find(!unit.odd);
    e_.line("V_EXP_V gp4, gp4, 0");
    e_.line("V_RED_SUM {}, gp4, 0", sum(unit));
    e_.line("S_ADDI_INT gp4, gp4, {}", vlen_);
  }
  bool tempered() const { return k_.shape.draws() && k_.shape.tempered; }
  const char* sum(const Unit& unit) const { return unit.odd ? "f5" : "f2"; }

  template <class F>
  void vectors(std::int64_t count, F&& body) {
    e_.loop("gp12", count / kUnroll, [&] {
      for (std::int64_t i = 0; i < kUnroll; ++i) body();
    });
    for (std::int64_t i = 0; i < count % kUnroll; ++i) body();
  }

  /// `ahead`: positions from the one at gp7.
  void start_maximum(bool odd, std::int64_t ahead) {
    e_.line("S_LI_FP {}, -inf", paired_ ? maximum(odd) : "f1");
    if (k_.shape.draws()) {
      e_.line("S_LI_FP f5, -inf");
      e_.line("S_LD_INT gp6, gp7, {}", at_.positions - at_.predicted + ahead);
      e_.line("S_LD_INT gp11, gp7, {}", at_.streams - at_.predicted + ahead);
      e_.line("C_SET_CSR gp11, draw_stream");
    }
    if (paired_) {
      e_.line("S_ADD_INT {}, gp3, gp0", index(odd));
    } else {
      e_.line("li gp5, 0");
      e_.line("li gp8, 0");
    }
  }

  void store_index(const Unit& unit) {
    if (paired_) {
      e_.line("S_SUB_INT gp11, {}, gp10", index(unit.odd));
      e_.line("S_ST_INT gp11, gp7, 0");
    } else {
      e_.line("S_ST_INT gp5, gp7, 0");
    }
  }

  void unit(const Unit& u) {
    const bool first = u.chunk == 0, last = u.chunk == chunks_ - 1;
    if (u.transfer) load();
    e_.line("S_LD_INT gp10, gp2, 1");
    e_.line("S_ADD_INT gp4, gp10, gp0");
    if (u.successor) {
      e_.line("S_LD_INT gp2, gp2, 0");
      e_.line("S_LD_INT gp3, gp2, 1");
    }
    if (!paired_) {
      if (!first) {
        e_.line("S_SUB_FP f4, f3, f1");
        if (tempered()) e_.line("S_MUL_FP f4, f4, f6");
        e_.line("S_EXP_FP f4, f4");
        e_.line("S_MUL_FP f2, f2, f4");
      }
      e_.line("S_MV_FP f3, f1");
      if (last) store_index(u);
      if (last && k_.shape.draws()) e_.line("S_MV_FP f4, f7");
    }
    if (first) e_.line("S_LI_FP {}, 0.0", sum(u));
    if (last && u.successor) start_maximum(!u.odd, 1);
    const std::int64_t early = paired_ ? std::min(kEarly, rows_) : 0;
    for (std::int64_t i = 0; i < early; ++i) vector(u);
    if (paired_) store_index(u);
    vectors(rows_ - early, [&] { vector(u); });
    if (last) finish_position(u);
  }

  void finish_position(const Unit& u) {
    if (k_.shape.draws()) {
      e_.line("S_SUB_FP f4, f4, f3");
      if (tempered()) e_.line("S_MUL_FP f4, f4, f6");
      e_.line("S_EXP_FP f4, f4");
      e_.line("S_RECI_FP f2, f2");
      e_.line("S_MUL_FP f2, f2, f4");
      e_.line("S_ST_FP f2, gp9, 0");
    } else {
      e_.line("S_RECI_FP f6, {}", sum(u));
      e_.line("S_ST_FP f6, gp9, 0");
    }
    e_.line("S_ADDI_INT gp9, gp9, 1");
    e_.line("S_ADDI_INT gp7, gp7, 1");
  }

  /// A position; `ahead`: number of units after it, to know where transfers and maxima end.
  void position(bool odd, std::int64_t ahead) {
    for (std::int64_t c = 0; c < chunks_; ++c) {
      const std::int64_t behind = ahead + chunks_ - 1 - c;
      unit({c, odd, behind >= at_.buffers - 1, behind > 0});
    }
  }

  void positions(std::int64_t count, std::int64_t ahead) {
    const std::int64_t step = paired_ ? 2 : 1;
    e_.region("reduce", [&] {
      e_.loop("gp13", count / step, [&] {
        for (std::int64_t i = 0; i < step; ++i) position(i == 1, ahead);
      });
    });
  }

  void select() {
    e_.region("select", [&] {
      e_.line("li gp11, {}", k_.shape.block);
      e_.line("S_MAP_V_FP gp0, gp0, gp11");
      e_.line("S_LD_INT gp3, gp0, {}", mask_pointer());
      e_.line("S_LD_INT gp4, gp0, {}", token_pointer());
      e_.line("S_SUB_INT gp9, gp7, gp11");
      e_.line("V_SELECT_INT gp9, gp9, gp4, gp3, gp11");
      e_.line("S_LD_INT gp8, gp0, {}", count_pointer());
      e_.line("S_LD_INT gp12, gp8, 0");
      e_.line("S_ADDI_INT gp8, gp8, 1");
      e_.line("S_ST_INT gp8, gp0, {}", count_pointer());
      e_.line("li gp8, {}", static_cast<std::int64_t>(at_.transfer_row) * vlen_);
      e_.line("V_TOPK_MASK gp8, gp0, gp3, gp12, gp11");
      e_.line("V_SELECT_INT gp4, gp9, gp4, gp8, gp11");
      e_.line("V_SUB_VV gp3, gp3, gp8, 0  ; decided now");
      e_.line("S_ADDI_INT gp3, gp3, {}", vlen_);
      e_.line("S_ST_INT gp3, gp0, {}", mask_pointer());
      e_.line("S_ADDI_INT gp4, gp4, {}", k_.shape.block);
      e_.line("S_ST_INT gp4, gp0, {}", token_pointer());
      e_.line("li gp9, 0");
      // The index of the unit whose maximum is already known continues from its value.
      if (!paired_) e_.line("li gp8, {}", chunks_ == 1 ? 0 : rows_ * vlen_);
    });
  }

  void step() {
    e_.region("begin", [&] {
      e_.line("li gp3, {}", static_cast<std::int64_t>(at_.mask_row) * vlen_);
      e_.line("S_ST_INT gp3, gp0, {}", mask_pointer());
      e_.line("li gp3, {}", at_.tokens);
      e_.line("S_ST_INT gp3, gp0, {}", token_pointer());
      e_.line("li gp7, {}", at_.predicted);
      e_.line("li gp9, 0");
      e_.line("li gp1, 0");
      for (std::int64_t i = 0; i + 1 < at_.buffers; ++i) {
        e_.line("S_LD_INT gp10, gp0, {}", scratch(2 * i + 1));
        load();
      }
      e_.line("S_LD_INT gp10, gp0, {}", scratch(2 * (at_.buffers - 1) + 1));
      e_.line("li gp2, {}", scratch(0));
      e_.line("S_LD_INT gp3, gp2, 1");
      start_maximum(false, 0);
      vectors(rows_, [&] { find(false); });
    });
    const std::int64_t block = k_.shape.block, many = at_.buffers + chunks_;  // more than what ends a transfer
    // The last positions of the step load nothing.
    std::int64_t tail = (at_.buffers - 1 + chunks_ - 1) / chunks_;
    if (paired_) tail += tail % 2;
    e_.loop("gp14", k_.shape.batch - 1, [&] {
      positions(block, many);
      select();
    });
    if (block > tail) positions(block - tail, many);
    e_.region("end", [&] {
      for (std::int64_t i = 0; i < tail; ++i) position(paired_ && i % 2 == 1, (tail - 1 - i) * chunks_);
    });
    select();
    if (k_.shape.draws()) {
      e_.line("S_LD_INT gp3, gp0, {}  ; the next pass", at_.draw + 2);
      e_.line("S_ADDI_INT gp3, gp3, 1");
      e_.line("S_ST_INT gp3, gp0, {}", at_.draw + 2);
      e_.line("C_SET_CSR gp3, draw_step");
    }
  }

  const SamplingKernel& k_;
  const SamplingLayout& at_;
  std::int64_t vlen_, rows_, chunks_;
  bool paired_;
  Emitter e_;
};

}  // namespace

std::string one_pass_text(const SamplingKernel& kernel) { return OnePass(kernel).text(); }

}  // namespace dllm::npu::sampling
