#include "test/full_writer.h"

#include <bit>
#include <cstdlib>

#include "test/engine.h"

namespace dllm::rtl {

void FullWriter::registers() {
  // gp3 and gp4 also name the last row: only instructions of one row use them.
  for (std::uint32_t r = 1; r <= 4; ++r) {
    const bool last = r > 2 && random_.one_in(8);
    set(r, (last ? EngineShape::kRows - 1 : random_.one_in(8) ? 0 : random_.below(r <= 2 ? 16 : 24)) * vlen_);
  }
  // Close together, so that targets overlap sources.
  for (std::uint32_t r = 5; r <= 8; ++r) {
    words_[r - 5] = random_.one_in(6) ? 0 : random_.one_in(2) ? random_.below(150) : 100 + random_.below(8);
    set(r, words_[r - 5]);
  }
  set(9, random_.one_in(4) ? vlen_ : random_.below(vlen_ + 1));
  long_ = random_.one_in(3) ? vlen_ * (1 + random_.below(3)) : random_.below(3 * vlen_ + 1);
  set(10, long_);
  set(11, random_.one_in(6) ? 0xffffffff : random_.below(2 * vlen_ + 2));
  line("li gp14, {}", random_.bits() & (random_.one_in(4) ? 0xffffffff : 0xffff));
  line("C_SET_V_MASK_REG gp14");
  control_register();
}

void FullWriter::instruction() {
  switch (random_.below(8)) {
    case 0:
    case 1:
    case 2:
      return row_operation();
    case 3:
      return reduction();
    case 4:
      return selection();
    case 5:
      return random_.one_in(2) ? scalar_fp() : scalar_int();
    case 6:
      // Prefetches bring fresh rows: results tend to NaN, 0 and infinity.
      return transfers_ && random_.one_in(3) ? prefetch() : setter();
    default:
      return draws_ && random_.one_in(2) ? draw() : branch();
  }
}

/// Within HBM of 4,096 bytes: a stride and a format other than the default show in the rows that arrive.
void FullWriter::prefetch() {
  const auto put = [&](const char* instruction, std::uint32_t value) {
    set(15, value);
    line("{}", instruction);
  };
  put("C_SET_CSR gp15, prefetch_v_rows", 1 + random_.below(4));
  put("C_SET_CSR gp15, format_vector_kv", random_.one_in(2) ? 0x35 : 0x07);  // mxfp8_e4m3 in blocks of 8, or BF16
  put("C_SET_STRIDE_REG gp15", vlen_ + 8 * random_.below(4));
  put("C_SET_SCALE_REG gp15", 2048 + random_.below(64));
  const std::uint32_t base = random_.below(8);
  set(14, random_.below(256));
  line("C_SET_ADDR_REG a{}, gp0, gp14", base);
  set(14, 8 * random_.below(16));
  line("H_PREFETCH_V {}, gp14, a{}, {}, {}, {}", lower_row(), base, random_.below(2), random_.below(2),
       random_.below(16));
}

/// Temperatures from 2^-4 to 2^4 with any bits below, and sometimes any.
void FullWriter::draw() {
  switch (random_.below(6)) {
    case 0: {
      const std::uint32_t exponent = random_.one_in(6) ? 1 + random_.below(2046) : 1019 + random_.below(8);
      control("draw_temperature_high", exponent << 20 | (random_.below(1u << 20) & (random_.one_in(2) ? 0 : 0xfffff)));
      return control("draw_temperature_low", random_.one_in(2) ? 0 : static_cast<std::uint32_t>(random_.bits()));
    }
    case 1:
      return control("draw_precision", random_.below(3));
    case 2:
      return control("draw_seed_low", static_cast<std::uint32_t>(random_.bits()));
    case 3:
      return control(one_of({"draw_except", "draw_tokens"}), random_.one_in(2) ? random_.below(2 * vlen_) : 0xffffffff);
    default:
      break;
  }
  if (random_.one_in(2)) line("S_LI_FP f3, -inf");
  line("V_RED_DRAW {}, {}, {}, {}, {}, {}", result(), row(), random_.one_in(2) ? "gp9" : any(),
       random_.one_in(3) ? f() : "f3", f(), any());
}

void FullWriter::row_operation() {
  switch (random_.below(6)) {
    case 0:
      return line("{} {}, {}, {}, {}", one_of({"V_ADD_VV", "V_SUB_VV", "V_MUL_VV", "V_MAX_VV", "V_MIN_VV"}), row(),
                  row(), row(), masked());
    case 1:
      if (random_.one_in(4)) return line("V_SUB_VF {}, {}, {}, {}, {}", row(), row(), f(), masked(), random_.below(2));
      return line("{} {}, {}, {}, {}", one_of({"V_ADD_VF", "V_MUL_VF", "V_MAX_VF", "V_MIN_VF"}), row(), row(), f(),
                  masked());
    case 2:
      return line("{} {}, {}, {}", one_of({"V_EXP_V", "V_RECI_V", "V_SQRT_V"}), row(), row(), masked());
    case 3:
      return line("{} {}, {}, {}", one_of({"V_RED_SUM_SEG", "V_RED_MAX_SEG", "V_PS_V"}), row(), row(), masked());
    case 4:
      return line("V_SHFT_V {}, {}, {}, {}", row(), row(), random_.one_in(2) ? any() : "gp11", random_.below(3));
    default:
      return line("C_HADAMARD_TRANSFORM {}, {}", row(), row());
  }
}

void FullWriter::reduction() {
  switch (random_.below(5)) {
    case 0:
      return line("V_RED_MAX {}, {}, {}", f(), row(), masked());
    case 1:
      return line("V_RED_SUM {}, {}, {}", f(), row(), masked());
    case 2:
      return line("S_LI_FP {}, -inf", f());
    default:
      return line("V_RED_MAX_IDX {}, {}, {}, {}", result(), row(), any(), f());
  }
}

void FullWriter::selection() {
  switch (random_.below(4)) {
    case 0:
      return line("V_TOPK {}, {}, {}, {}", word(), lower_row(), word(), random_.below(3));
    case 1:
      return line("V_TOPK_MASK {}, {}, {}, gp11, gp9", row(), row(), row());
    case 2:
      if (random_.one_in(3)) return line("S_MAP_V_FP {}, {}, {}", row(), word(), random_.below(8));
      return line("S_MAP_V_FP {}, {}, gp9, {}", row(), word(), offset());
    default:
      break;
  }
  for (;;) {  // never two sources that need opposite orders
    const std::uint32_t d = random_.below(4), a = random_.below(4), b = random_.below(4);
    const auto distance = [&](std::uint32_t s) {
      return static_cast<std::int64_t>(words_[d]) - static_cast<std::int64_t>(words_[s]);
    };
    const auto overlaps = [&](std::int64_t by) { return by != 0 && std::abs(by) < long_; };
    if (overlaps(distance(a)) && overlaps(distance(b)) && (distance(a) > 0) != (distance(b) > 0)) continue;
    return line("V_SELECT_INT gp{}, gp{}, gp{}, {}, gp10", 5 + d, 5 + a, 5 + b, lower_row());
  }
}

void FullWriter::scalar_fp() {
  switch (random_.below(5)) {
    case 0:
      return line("{} {}, {}", one_of({"S_EXP_FP", "S_RECI_FP", "S_SQRT_FP", "S_MV_FP"}), f(), f());
    case 1:
      return line("S_LI_FP {}, 0x{:04x}", f(), random_.any());
    case 2:
      return line("S_LD_FP {}, {}, {}", f(), word(), offset());
    case 3:
      return line("S_ST_FP {}, {}, {}", f(), word(), offset());
    default:
      return line("{} {}, {}, {}", one_of({"S_ADD_FP", "S_SUB_FP", "S_MUL_FP", "S_MAX_FP"}), f(), f(), f());
  }
}

void FullWriter::scalar_int() {
  switch (random_.below(5)) {
    case 0:
      return line("S_LD_INT {}, {}, {}", result(), word(), offset());
    case 1:
      return line("S_ST_INT {}, {}, {}", any(), word(), offset());
    case 2:
      return line("S_LUI_INT {}, {}", result(), random_.bits() & 0x3fffff);
    case 3:
      return line("S_ADDI_INT {}, {}, {}", result(), any(), random_.bits() & 0x3ffff);
    default:
      return line("{} {}, {}, {}", one_of({"S_ADD_INT", "S_SUB_INT", "S_MUL_INT"}), result(), any(), any());
  }
}

void FullWriter::setter() {
  switch (random_.below(6)) {
    case 0:
      return line("C_SET_ADDR_REG a{}, {}, {}", random_.below(8), any(), any());
    case 1:
      return line("C_SET_SCALE_REG {}", any());
    case 2:
      return line("C_SET_STRIDE_REG {}", any());
    case 3:
      return line("C_SET_V_MASK_REG {}", any());
    case 4:
      return line("C_FENCE {}", random_.below(16));
    default:
      return control_register();
  }
}

/// A value that its register takes; segment_length and the router's registers often, because instructions read them.
void FullWriter::control_register() {
  const auto lanes = static_cast<std::uint32_t>(std::countr_zero(vlen_));
  switch (random_.below(8)) {
    case 0:
    case 1:
    case 2:
      return control("segment_length", 1u << random_.below(lanes + 1));
    case 3: {
      const std::uint32_t experts = 1 + random_.below(vlen_);
      control("router_experts", experts);
      return control("router_top", 1 + random_.below(experts));
    }
    case 4:
      return control(one_of({"prefetch_m_rows", "prefetch_v_rows", "store_v_rows"}), 1 + random_.below(1u << 24));
    case 5:
      return control(one_of({"bmm_rows", "bmm_cols"}), blen_ * (1 + random_.below(mlen_ / blen_)));
    case 6:
      if (random_.one_in(2))
        return control("bmm_head_stride", static_cast<std::uint32_t>(random_.bits()) & ~(blen_ - 1));
      return control(one_of({"bmm_layout", "bmm_group", "mm_rows", "draw_precision"}), 1);
    default:
      return control(one_of({"bmm_scale", "draw_seed_low", "draw_seed_high", "draw_stream", "draw_step", "draw_except",
                             "draw_tokens", "draw_temperature_low"}),
                     static_cast<std::uint32_t>(random_.bits()));
  }
}

/// Over an instruction, or back to one until a counter is 0.
void FullWriter::branch() {
  const int label = labels_++;
  if (random_.one_in(2)) {
    if (random_.one_in(4)) set(15, 1u << random_.below(32));
    line("C_BNZ {}, over{}", random_.one_in(3) ? "gp0" : random_.one_in(2) ? "gp15" : any(), label);
    row_operation();
    if (random_.one_in(2)) line("S_ADDI_INT gp15, gp0, {}", random_.below(9));
    line("over{}: S_ADD_INT gp14, gp15, gp14", label);
    return;
  }
  set(13, 1 + random_.below(3));
  line("back{}: S_ADDI_INT gp14, gp0, 1", label);
  row_operation();
  line("S_SUB_INT gp13, gp13, gp14");
  line("C_BNZ gp13, back{}", label);
}

void FullWriter::loop() {
  const int label = labels_++;
  const bool leaves = random_.one_in(3);
  line("C_LOOP_START gp12, {}", random_.below(4));
  if (random_.one_in(2)) random_.one_in(2) ? selection() : scalar_int();
  if (random_.one_in(2)) {
    line("C_LOOP_START gp13, {}", 1 + random_.below(3));
    row_operation();
    // Out of the inner loop, or of both.
    if (leaves) line("C_BNZ gp{}, {}{}", 11 + random_.below(5), random_.one_in(2) ? "inner" : "outer", label);
    if (random_.one_in(2)) reduction();
    line("C_LOOP_END gp13");
    line("inner{}: S_ADDI_INT gp14, gp14, 3", label);
  }
  if (leaves) line("C_BNZ gp14, outer{}", label);
  if (random_.one_in(2)) scalar_fp();
  line("C_LOOP_END gp12");
  line("outer{}: S_ADDI_INT gp15, gp12, 1", label);
}

}  // namespace dllm::rtl
