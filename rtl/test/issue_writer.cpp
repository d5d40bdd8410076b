#include "test/issue_writer.h"

#include <fmt/format.h>

#include <bit>
#include <regex>
#include <sstream>

#include "npu_core/device/profile.h"
#include "test/checked.h"
#include "test/engine.h"
#include "test/full_writer.h"

namespace dllm::rtl {
namespace {

/// Products and write-outs beside vector and scalar instructions on the same rows. gp1 and gp2 are operands, gp3 is a
/// result; FullWriter's registers are set again after a group.
class BesideWriter : public ProgramText {
 public:
  BesideWriter(Vectors& random, const npu::MachineConfig& config)
      : ProgramText(random),
        vlen_(static_cast<std::uint32_t>(config.vlen)),
        mlen_(static_cast<std::uint32_t>(config.mlen)),
        blen_(static_cast<std::uint32_t>(config.blen)),
        hlen_(static_cast<std::uint32_t>(config.hlen)),
        tiles_(static_cast<std::uint32_t>(config.mram_elements) / (mlen_ * mlen_)),
        others_(random, config) {}

  void others(std::uint32_t count) {
    others_.registers();
    for (std::uint32_t i = count; i > 0; --i) random_.one_in(10) ? others_.loop() : others_.instruction();
    lines(others_.take());
  }
  /// Every tile of matrix SRAM.
  void load_tiles() {
    control("prefetch_m_rows", mlen_);
    for (std::uint32_t i = 0; i < tiles_; ++i) {
      set(14, i * mlen_ * mlen_);
      set(15, 64 * i);
      line("H_PREFETCH_M gp14, gp15, a0, 0, 0");
    }
  }
  /// Loads of one cell, stores of up to three rows, and fences. Their addresses overlap now and then.
  void transfers() {
    line("C_SET_ADDR_REG a0, gp0, gp0");
    set(15, 3072);
    line("C_SET_SCALE_REG gp15");
    control("prefetch_v_rows", 1);
    control("store_v_rows", 1 + random_.below(3));
    control("prefetch_m_rows", mlen_);
    for (std::uint32_t i = 1 + random_.below(4); i > 0; --i) {
      set(15, 256 * random_.below(12));
      const std::uint32_t tag = random_.below(4);
      switch (random_.below(5)) {
        case 0:
          set(14, tile());
          line("H_PREFETCH_M gp14, gp15, a0, 0, 0, {}", tag);
          break;
        case 1:
          line("H_STORE_V gp{}, gp15, a0, 0, 0, {}", 1 + random_.below(2), tag);
          break;
        case 2:
          line("C_FENCE {}", tag);
          break;
        default:
          line("H_PREFETCH_V gp{}, gp15, a0, 0, 0, {}", 1 + random_.below(4), tag);
      }
      between();
    }
  }
  void matrix() {
    switch (random_.below(4)) {
      case 0:
        return heads(false);
      case 1:
        return heads(true);
      case 2:
        return vectors();
      default:
        return tiles();
    }
  }

 private:
  std::uint32_t row() { return random_.below(24) * vlen_; }
  std::uint32_t tile() { return random_.below(tiles_) * mlen_ * mlen_; }
  void between() {
    for (std::uint32_t i = random_.below(4); i > 0; --i) switch (random_.below(6)) {
        case 0:
          line("V_ADD_VV gp{}, gp{}, gp2", 1 + random_.below(4), 1 + random_.below(4));
          break;
        case 1:
          line("V_RED_SUM f{}, gp{}", 1 + random_.below(7), 1 + random_.below(4));
          break;
        case 2:
          line("S_MAP_V_FP gp{}, gp0, {}", 1 + random_.below(4), random_.below(32));
          break;
        case 3:
          line("S_MUL_FP f{}, f{}, f{}", 1 + random_.below(7), random_.below(8), random_.below(8));
          break;
        case 4:
          line("V_EXP_V gp{}, gp2", 1 + random_.below(4));
          break;
        default:
          line("S_ADDI_INT gp14, gp14, 1");
      }
  }
  void tiles() {
    control("mm_rows", random_.one_in(3) ? 1 + random_.below(blen_) : blen_);
    for (std::uint32_t i = random_.below(5); i > 0; --i) {
      set(2, row());
      set(1, tile() + random_.below(mlen_ / blen_) * blen_ * mlen_);
      line("{}", random_.one_in(2) ? "M_MM 0, gp1, gp2" : "M_TMM 0, gp2, gp1");
      set(1, row());
      between();
    }
    set(3, row() + random_.below(vlen_ / blen_) * blen_);
    set(4, random_.below(3));
    line("M_MM_WO gp3, gp4, 0");
    control("mm_rows", blen_);
    for (std::uint32_t r = 1; r <= 4; ++r) set(r, row());
    between();
  }
  void vectors() {
    for (std::uint32_t i = 1 + random_.below(3); i > 0; --i) {
      set(2, row());
      set(1, tile() + random_.below(mlen_ / blen_) * blen_);
      line("{} 0, gp1, gp2", random_.one_in(2) ? "M_MV" : "M_TMV");
    }
    set(3, row());
    line("M_MV_WO gp3, {}", random_.one_in(2) ? 0 : blen_);
    for (std::uint32_t r = 1; r <= 4; ++r) set(r, row());
    between();
  }
  void heads(bool single) {
    const std::uint32_t count = mlen_ / hlen_, rows = single ? 1 : (1 + random_.below(mlen_ / blen_)) * blen_;
    const std::uint32_t group = 1u << random_.below(static_cast<std::uint32_t>(std::countr_zero(count)) + 1);
    const std::uint32_t slices = count / group, cols = (1 + random_.below(mlen_ / blen_)) * blen_;
    if (!single) control("bmm_rows", rows);
    control("bmm_cols", cols);
    control("bmm_group", group);
    control("bmm_layout", 0);
    for (std::uint32_t i = 1 + random_.below(3); i > 0; --i) {
      set(2, row());
      const bool transposed = random_.one_in(2);
      const std::uint32_t part = transposed ? 0 : random_.below((mlen_ - slices * hlen_) / hlen_ + 1) * hlen_;
      const std::uint32_t address = tile() + part * mlen_, rest = single ? random_.below(address + 1) : 0;
      set(1, address - rest);
      if (single) set(15, rest);
      if (single)
        line("{} gp15, gp1, gp2", transposed ? "M_BTMV" : "M_BMV");
      else
        line("{} 0, gp1, gp2", transposed ? "M_BTMM" : "M_BMM");
      if (!random_.one_in(3)) continue;
      set(1, row());
      between();
    }
    control("bmm_head_stride", random_.one_in(2) && count * cols <= vlen_ ? std::bit_ceil(cols)
                               : random_.one_in(2)                        ? (rows + random_.below(3)) * vlen_
                                                                          : 0);
    set(3, row());
    line("{} gp3, 0", single ? "M_BMV_WO" : "M_BMM_WO");
    for (std::uint32_t r = 1; r <= 4; ++r) set(r, row());
    between();
  }

  std::uint32_t vlen_, mlen_, blen_, hlen_, tiles_;
  FullWriter others_;
};

/// Reductions add to f1 to f3, and other instructions use f0 and f4 to f7, but at the end. The simulator lets a
/// reduction start before older scalar instructions that use its register have started: hardware cannot
/// (docs/design/rtl.md).
std::string apart_registers(const std::string& text) {
  static const std::regex kReduction("V_RED_(SUM|MAX|MAX_IDX|DRAW) "), kRegister("\\bf([0-7])\\b");
  std::istringstream lines(text);
  std::string result, line;
  while (std::getline(lines, line)) {
    // The first eight rows of a longer source take ports in the simulator, chained or not.
    if (line.starts_with("V_TOPK gp") && line.ends_with(", 1")) line.back() = '0';
    const bool reduction = std::regex_search(line, kReduction);
    std::smatch found;
    while (std::regex_search(line, found, kRegister)) {
      const int number = found[1].str()[0] - '0';
      const int other = number < 4 ? 4 * (number % 2) : number;
      result += found.prefix().str() + fmt::format("f{}", reduction ? 1 + number % 3 : other);
      line = found.suffix().str();
    }
    result += line + "\n";
  }
  for (int r = 1; r <= 3; ++r) result += fmt::format("S_ADD_FP f4, f{}, f4\nV_MUL_VF gp1, gp2, f{}\n", r, r);
  return result + "M_SUM\n";
}

}  // namespace

std::string issue_program(Vectors& random, const npu::MachineConfig& config) {
  BesideWriter writer(random, config);
  writer.load_tiles();
  for (int i = 0; i < 30; ++i) {
    writer.others(4 + random.below(12));
    if (random.one_in(2)) writer.matrix();
    if (random.one_in(3)) writer.transfers();
  }
  return apart_registers(writer.take());
}

npu::Device issue_device(const std::string& ports) {
  return checked(npu::load_device("plena-64", {{"sram.vector_rows", std::to_string(EngineShape::kRows)},
                                               {"sram.fp_words", std::to_string(EngineShape::kFpWords)},
                                               {"sram.int_words", std::to_string(EngineShape::kIntWords)},
                                               {"sram.vector_ports", ports},
                                               {"prefetch.outstanding", "2"},
                                               {"array.noise_lanes", "8"}}));
}

void fill_issue(npu::MachineState& state, Vectors& random) {
  const auto lanes = static_cast<std::size_t>(state.config.vlen);
  for (std::size_t i = 0; i < 40 * lanes; ++i) state.vram[i] = random.one_in(4) ? npu::Bf16{0} : random.logit();
  for (std::uint32_t i = 0; i < EngineShape::kFpWords; ++i) state.fp_mem[i] = random.logit();
  for (std::uint32_t i = 0; i < EngineShape::kIntWords; ++i)
    state.int_mem[i] = static_cast<std::uint32_t>(random.bits());
}

}  // namespace dllm::rtl
