// d-PLENA's edge mode: only a chunk of the vocabulary is on chip at a time, so the logits are read twice, for the
// maximum and for the sum. It waits for each transfer; only the hardware overlaps work. Registers:
//   gp1 buffer   gp2 source   gp3 row   gp4 index of the row's first lane, later the count   gp5 arg-max   gp6 tokens
//   gp7 predicted   gp8 mask row   gp9 source of the position   gp10 batch items   gp11 block   gp12 loops over vectors
//   gp13 chunks   gp14 counts   gp15 steps; the count of positions is gp4, which lives in INT_MEM meanwhile

#include "npu_core/sampling/emitter.h"

namespace dllm::npu::sampling {
namespace {

class Chunked {
 public:
  explicit Chunked(const SamplingKernel& kernel)
      : k_(kernel), at_(kernel.layout), vlen_(kernel.machine.vlen), rows_(kernel.shape.chunk / vlen_) {}

  std::string text() {
    const std::int64_t buffer = static_cast<std::int64_t>(at_.vram_rows - buffer_rows()) * vlen_;
    buffer_ = buffer;
    e_.line("; sampling in chunks, logits read twice: batch {}, block {}, vocabulary {}, chunk {}, {} steps",
            k_.shape.batch, k_.shape.block, k_.shape.vocab, k_.shape.chunk, k_.shape.steps);
    setup();
    e_.loop("gp15", k_.shape.steps, [&] { step(); });
    e_.line("C_BREAK");
    return e_.take();
  }

 private:
  std::uint64_t buffer_rows() const {
    const std::int64_t per = k_.shape.preload;
    return static_cast<std::uint64_t>((rows_ + per - 1) / per * per);
  }

  void setup() {
    e_.region("setup", [&] {
      e_.line("li gp11, {}", k_.shape.block);
      e_.line("li gp14, {}", at_.counts);
      load_masks(e_, k_);
    });
  }

  /// Loads `rows` vectors from gp2 on and runs `body` for each, with its address in gp3.
  template <class F>
  void chunk(std::int64_t rows, F&& body) {
    const std::int64_t per = k_.shape.preload;
    e_.line("li gp1, {}", buffer_);
    const std::int64_t whole = rows / per, rest = rows % per;
    const auto transfer = [&](std::int64_t n) {
      e_.line("H_PREFETCH_V gp1, gp2, a1, 0, 0");
      e_.line("S_ADDI_INT gp1, gp1, {}", n * vlen_);
      e_.line("S_ADDI_INT gp2, gp2, {}", n * vlen_);
    };
    if (whole == 1)
      transfer(per);
    else
      e_.loop("gp12", whole, [&] { transfer(per); });
    if (rest > 0) {
      e_.line("li gp3, {}", rest);
      e_.line("C_SET_CSR gp3, prefetch_v_rows");
      transfer(rest);
      e_.line("li gp3, {}", per);
      e_.line("C_SET_CSR gp3, prefetch_v_rows");
    }
    e_.line("li gp3, {}", buffer_);
    e_.loop("gp12", rows, body);
  }

  /// A pass over the vocabulary: whole chunks in a loop, then the rest.
  template <class F>
  void pass(F&& body) {
    const std::int64_t whole = at_.vectors / rows_, rest = at_.vectors % rows_;
    e_.loop("gp13", whole, [&] { chunk(rows_, body); });
    if (rest > 0) chunk(rest, body);
  }

  void step() {
    e_.line("li gp6, {}", at_.tokens);
    e_.line("li gp7, {}", at_.predicted);
    e_.line("li gp8, {}", static_cast<std::int64_t>(at_.mask_row) * vlen_);
    e_.line("li gp9, 0");
    e_.loop("gp10", k_.shape.batch, [&] {
      e_.line("S_ST_INT gp0, gp0, {}  ; position", at_.int_words - 2);
      e_.loop("gp4", k_.shape.block, [&] { position(); });
      select();
    });
  }

  void position() {
    e_.line("S_ST_INT gp4, gp0, {}", at_.int_words - 3);
    e_.region("maximum", [&] {
      e_.line("S_LI_FP f1, -inf");
      e_.line("li gp5, 0");
      e_.line("li gp4, 0");
      e_.line("S_ADD_INT gp2, gp9, gp0");
      pass([&] { find_maximum(e_, vlen_); });
    });
    e_.region("sum", [&] {
      e_.line("S_LI_FP f2, 0.0");
      e_.line("S_ADD_INT gp2, gp9, gp0");
      pass([&] { add_exponentials(e_, vlen_); });
      e_.line("S_ADD_INT gp9, gp2, gp0");
    });
    e_.line("S_RECI_FP f2, f2");
    e_.line("S_LD_INT gp3, gp0, {}", at_.int_words - 2);
    e_.line("S_ST_FP f2, gp3, 0");
    e_.line("S_ADD_INT gp4, gp7, gp3");
    e_.line("S_ST_INT gp5, gp4, 0");
    e_.line("S_ADDI_INT gp3, gp3, 1");
    e_.line("S_ST_INT gp3, gp0, {}", at_.int_words - 2);
    e_.line("S_LD_INT gp4, gp0, {}", at_.int_words - 3);
  }

  void select() {
    e_.region("select", [&] {
      e_.line("S_MAP_V_FP gp0, gp0, gp11");
      e_.line("S_LD_INT gp4, gp14, 0");
      e_.line("li gp3, {}", static_cast<std::int64_t>(at_.transfer_row) * vlen_);
      e_.line("V_TOPK_MASK gp3, gp0, gp8, gp4, gp11");
      e_.line("V_SELECT_INT gp7, gp7, gp6, gp8, gp11");
      e_.line("V_SELECT_INT gp6, gp7, gp6, gp3, gp11");
      e_.line("V_SUB_VV gp8, gp8, gp3, 0  ; decided now");
      next_item(e_, k_);
    });
  }

  const SamplingKernel& k_;
  const SamplingLayout& at_;
  std::int64_t vlen_, rows_, buffer_ = 0;
  Emitter e_;
};

}  // namespace

std::string chunked_text(const SamplingKernel& kernel) { return Chunked(kernel).text(); }

}  // namespace dllm::npu::sampling
