#include <iterator>

#include "test/engine.h"
#include "test/full_writer.h"

namespace dllm::rtl {

void FullWriter::edge() {
  if (draws_ && random_.one_in(4)) {
    set(14, random_.one_in(3) ? 0x7ff00000 : random_.one_in(2) ? 0 : 0x80000000u >> random_.below(32));
    line("C_SET_CSR gp14, draw_temperature_high");
    line("C_SET_CSR gp{}, draw_temperature_low", random_.one_in(3) ? 14 : 0);
    if (random_.one_in(3)) set(1, (EngineShape::kRows - random_.below(2)) * vlen_ + random_.below(2));
    return line("V_RED_DRAW gp14, gp1, gp0, f1, f2, gp0");
  }
  switch (random_.below(8)) {
    case 0:
    case 1:
      return row_edge();
    case 2:
      return word_edge();
    case 3:
      return map_edge();
    case 4:
      return select_edge();
    case 5:
      return router_edge();
    case 6:
      return value_edge();
    default:
      return loop_edge();
  }
}

/// At a limit, one before or after it, or far beyond: where the sum with a length would wrap, or with a bit of the
/// upper half that hardware might drop.
std::uint32_t FullWriter::near(std::uint32_t limit) {
  switch (random_.below(8)) {
    case 0:
      return 0xffffffffu - random_.below(8);
    case 1:
      return 0x80000000u + random_.below(2) * limit;
    case 2:
    case 3:
      return limit | 0x10000u << random_.below(16);
    case 4:
      return limit - 1;
    case 5:
      return limit + 1;
    default:
      return limit;
  }
}

void FullWriter::row_edge() {
  const std::uint32_t last = (EngineShape::kRows - 1) * vlen_;
  static constexpr std::uint32_t kOffsets[] = {0, 1, 3};
  std::uint32_t bad = last;
  if (random_.one_in(2)) bad = last + vlen_ * (1 + random_.below(2));
  if (random_.one_in(3)) bad = last + kOffsets[random_.below(3)];
  if (random_.one_in(6)) bad = (0x80000000u | last) - random_.below(2) * 0x80000000u;
  if (random_.one_in(8)) bad = 0xffffffffu - (vlen_ - 1);
  set(14, bad);
  std::string names[3] = {row(), row(), row()};
  names[random_.below(3)] = "gp14";
  const auto& [d, a, b] = names;
  set(15, random_.below(vlen_ + 1));
  switch (random_.below(6)) {
    case 0:
      return line("{} {}, {}, {}", one_of({"V_ADD_VV", "V_MUL_VV", "V_MIN_VV"}), d, a, b);
    case 1:
      return line("{} {}, {}, f1", one_of({"V_SUB_VF", "V_MAX_VF", "V_MUL_VF"}), d, a);
    case 2:
      return line("{} {}, {}", one_of({"V_EXP_V", "V_SQRT_V", "V_RED_SUM_SEG", "V_PS_V", "C_HADAMARD_TRANSFORM"}), d,
                  a);
    case 3:
      return line("{} f1, {}", one_of({"V_RED_SUM", "V_RED_MAX"}), a);
    case 4:
      return line("V_SHFT_V {}, {}, gp11, {}", d, a, random_.below(3));
    default:
      return line("V_TOPK_MASK {}, {}, {}, gp11, gp15", d, a, b);
  }
}

void FullWriter::word_edge() {
  const bool integer = random_.one_in(2);
  const std::uint32_t limit = integer ? EngineShape::kIntWords : EngineShape::kFpWords;
  const std::uint32_t imm = random_.one_in(3) ? 0 : random_.below(limit);
  // A sum of 2^32 and a word that exists must trap, too.
  const bool wraps = imm > 0 && random_.one_in(3);
  set(14, (wraps ? random_.below(imm) : near(limit - 1)) - imm);
  if (integer) return line("{} gp15, gp14, {}", one_of({"S_LD_INT", "S_ST_INT"}), imm);
  line("{} f2, gp14, {}", one_of({"S_LD_FP", "S_ST_FP"}), imm);
}

void FullWriter::map_edge() {
  const std::uint32_t length = random_.one_in(3) ? vlen_ + random_.below(3) : random_.below(vlen_ + 1);
  const std::uint32_t imm = random_.one_in(2) ? 0 : random_.below(100);
  set(14, near(EngineShape::kFpWords - (length > vlen_ ? 0 : length)) - imm);
  set(15, length);
  if (random_.one_in(3)) set(1, vlen_ * EngineShape::kRows - random_.below(2) * vlen_ + random_.below(2));
  if (random_.one_in(3)) {
    set(14, near(EngineShape::kFpWords - vlen_) - imm);
    return line("S_MAP_V_FP gp1, gp14, {}", imm);
  }
  line("S_MAP_V_FP gp1, gp14, gp15, {}", imm);
}

void FullWriter::select_edge() {
  const std::uint32_t length = random_.one_in(4) ? 0 : random_.below(3 * vlen_ + 1);
  set(15, length);
  const std::uint32_t which = random_.below(4);
  set(5, 0);
  set(6, 200);
  set(7, 0);
  // One of the four is at its limit; sometimes a second one, so that the order of the checks shows.
  for (const std::uint32_t at : {which, random_.below(4)}) {
    if (at == 3)
      set(1, EngineShape::kRows * vlen_ - (length + vlen_ - 1) / vlen_ * vlen_ + random_.below(3) * vlen_ / 2);
    else
      set(5 + at, near(EngineShape::kIntWords - length));
    if (random_.one_in(2)) break;
  }
  line("V_SELECT_INT gp5, gp6, gp7, gp1, gp15");
}

void FullWriter::router_edge() {
  const std::uint32_t policy = random_.below(3);
  std::uint32_t experts = policy == 0 ? 32 : 128, top = policy == 0 ? 4 : 8;
  if (policy == 2) {
    experts = 1 + random_.below(vlen_);
    top = 1 + random_.below(vlen_);
    control("router_experts", experts);
    control("router_top", top);
  }
  const std::uint32_t rows = (experts + vlen_ - 1) / vlen_;
  if (random_.one_in(3)) set(1, (EngineShape::kRows - rows + random_.below(2)) * vlen_ + random_.below(2));
  if (random_.one_in(2)) set(5, near(EngineShape::kFpWords - top));
  if (random_.one_in(2)) set(6, near(EngineShape::kIntWords - top));
  line("V_TOPK gp5, gp1, gp6, {}", policy);
}

void FullWriter::value_edge() {
  // By the number of the register: rows, shapes of the matrix unit, lanes, formats, precision of draws.
  const std::uint32_t csr = random_.one_in(10) ? 24 : random_.below(19);
  std::uint32_t value = random_.below(14);
  if (csr >= 1 && csr <= 3 && random_.one_in(2)) value = (1u << 24) + random_.below(3) - 1;
  if (csr >= 11 && csr <= 15)  // rule, log2 of the block, element
    value = random_.below(5) << 8 | random_.below(8) << 4 | random_.below(12);
  else if (random_.one_in(3))
    value = vlen_ + random_.below(3) - 1;
  else if (random_.one_in(6))
    value = 1u << random_.below(32);
  set(14, value);
  line("C_SET_CSR gp14, {}", csr);
}

void FullWriter::loop_edge() {
  const std::uint32_t depth = 15 + random_.below(3);
  for (std::uint32_t i = 0; i < depth; ++i) {
    if (random_.one_in(3)) row_operation();
    line("C_LOOP_START gp{}, {}", 12 + i % 2, i < 2 ? 2 : 1);
  }
  row_operation();
  for (std::uint32_t i = depth; i-- > 0;) line("C_LOOP_END gp{}", 12 + i % 2);
}

}  // namespace dllm::rtl
