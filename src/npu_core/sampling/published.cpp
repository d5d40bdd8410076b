// d-PLENA's sampling kernel (research/lab/npu-sampling.md): the same instructions per position, vector and transfer, in
// hardware loops where the public generator unrolls. Registers:
//   gp1, gp2 target and source of transfers   gp3 row   gp4 index of the row's first lane, later the count   gp5
//   arg-max gp6 tokens   gp7 predicted   gp8 mask row   gp9 transfer row   gp10 distance to the scales   gp11 block
//   gp12 loops over vectors   gp13 batch items   gp14 counts   gp15 steps

#include "npu_core/sampling/emitter.h"

namespace dllm::npu::sampling {
namespace {

/// The machine's default number of vectors per transfer, unlike the other forms' load_masks().
void load_published_masks(Emitter& e, const SamplingKernel& k) {
  const SamplingLayout& at = k.layout;
  const std::int64_t vlen = k.machine.vlen, per_transfer = k.machine.prefetch_v_rows;
  e.region("masks", [&] {
    e.line("li gp3, {}", at.masks);
    e.line("C_SET_ADDR_REG a2, gp0, gp3");
    e.line("li gp3, {}", at.masks_scales);
    e.line("C_SET_SCALE_REG gp3");
    e.line("li gp1, {}", at.mask_row * static_cast<std::uint64_t>(vlen));
    e.line("S_LD_INT gp2, gp0, {}", at.int_words - 1);
    e.loop("gp12", (k.shape.batch + per_transfer - 1) / per_transfer, [&] {
      e.line("H_PREFETCH_V gp1, gp2, a2, 0, 0");
      e.line("S_ADDI_INT gp1, gp1, {}", per_transfer * vlen);
      e.line("S_ADDI_INT gp2, gp2, {}", per_transfer * vlen);
    });
    e.line("li gp2, {}", k.shape.batch * vlen);
    e.line("S_LD_INT gp3, gp0, {}", at.int_words - 1);
    e.line("S_ADD_INT gp3, gp3, gp2");
    e.line("S_ST_INT gp3, gp0, {}  ; the next step's masks", at.int_words - 1);
  });
}

/// Loads the logits of a batch item into VRAM from `first` on; gp2 is their address in memory.
void load_logits(Emitter& e, const SamplingKernel& k, std::uint64_t first) {
  const std::int64_t vectors = k.shape.block * k.layout.vectors;
  const std::int64_t per_transfer = k.machine.prefetch_v_rows, lanes = per_transfer * k.machine.vlen;
  e.region("load", [&] {
    e.line("C_SET_ADDR_REG a1, gp0, gp0");
    e.line("C_SET_SCALE_REG gp10");
    e.line("li gp1, {}", first);
    e.loop("gp12", (vectors + per_transfer - 1) / per_transfer, [&] {
      e.line("H_PREFETCH_V gp1, gp2, a1, 0, 0");
      e.line("S_ADDI_INT gp1, gp1, {}", lanes);
      e.line("S_ADDI_INT gp2, gp2, {}", lanes);
    });
  });
  if (const std::int64_t over = vectors % per_transfer; over != 0) {
    e.line("li gp3, {}  ; the last transfer read that much of the next item", (per_transfer - over) * k.machine.vlen);
    e.line("S_SUB_INT gp2, gp2, gp3");
  }
}

/// Like the published generator: two instructions beyond 18 bits, even where one would suffice.
void load_address(Emitter& e, std::uint64_t address) {
  if (address < (std::uint64_t{1} << 18)) {
    e.line("S_ADDI_INT gp3, gp0, {}", address);
    return;
  }
  e.line("S_LUI_INT gp3, {}", address >> 12);
  e.line("S_ADDI_INT gp3, gp3, {}", address & 0xfff);
}

void reduce_position(Emitter& e, const SamplingKernel& k, std::int64_t position, std::uint64_t row) {
  const std::int64_t vlen = k.machine.vlen;
  e.line("S_LI_FP f1, -inf");
  e.line("li gp5, 0");
  e.line("li gp4, 0");
  e.line("S_LI_FP f2, 0.0");
  load_address(e, row);
  e.loop("gp12", k.layout.vectors, [&] { find_maximum(e, vlen); });
  load_address(e, row);
  e.loop("gp12", k.layout.vectors, [&] { add_exponentials(e, vlen); });
  e.line("S_RECI_FP f2, f2");
  e.line("S_ST_FP f2, gp0, {}", position);
  e.line("S_ST_INT gp5, gp7, {}", position);
}

}  // namespace

std::string published_text(const SamplingKernel& k, std::int64_t idle_instructions) {
  const SamplingLayout& at = k.layout;
  const auto vlen = static_cast<std::uint64_t>(k.machine.vlen);
  const std::uint64_t logits = (3 * static_cast<std::uint64_t>(k.shape.batch)) * vlen;
  Emitter e;
  e.line("; sampling, published form: batch {}, block {}, vocabulary {} in {} vectors of {}, {} steps", k.shape.batch,
         k.shape.block, k.shape.vocab, at.vectors, vlen, k.shape.steps);
  e.region("setup", [&] {
    e.line("C_SET_STRIDE_REG gp0");
    e.line("C_SET_V_MASK_REG gp0");
    e.line("li gp11, {}", k.shape.block);
    e.line("li gp10, {}", at.logits_scales);
    e.line("li gp9, {}", at.transfer_row * vlen);
    e.line("li gp14, {}", at.counts);
    e.line("S_ST_INT gp0, gp0, {}  ; offset of the step's masks", at.int_words - 1);
    if (idle_instructions > 0) {
      e.line("; The published generator emits more scalar instructions here, whose purpose is not public.");
      e.line(".rep {}, i", idle_instructions);
      e.line("  S_ADDI_INT gp0, gp0, 0");
      e.line(".endr");
    }
  });
  e.loop("gp15", k.shape.steps, [&] {
    load_published_masks(e, k);
    e.line("li gp2, 0");
    e.line("li gp6, {}", at.tokens);
    e.line("li gp7, {}", at.predicted);
    e.line("li gp8, {}", at.mask_row * vlen);
    e.loop("gp13", k.shape.batch, [&] {
      load_logits(e, k, logits);
      e.region("reduce", [&] {
        for (std::int64_t l = 0; l < k.shape.block; ++l)
          reduce_position(e, k, l, logits + static_cast<std::uint64_t>(l * at.padded_vocab));
      });
      e.region("select", [&] {
        e.line("S_MAP_V_FP gp0, gp0, gp11");
        e.line("S_LD_INT gp4, gp14, 0");
        e.line("V_TOPK_MASK gp9, gp0, gp8, gp4, gp11");
        e.line("V_SELECT_INT gp7, gp7, gp6, gp8, gp11");
        e.line("V_SELECT_INT gp6, gp7, gp6, gp9, gp11");
        next_item(e, k);
      });
    });
  });
  return e.take();  // the program ends after its last instruction
}

}  // namespace dllm::npu::sampling
