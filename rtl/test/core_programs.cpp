#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "npu_core/assembler/assembler.h"
#include "test/checked.h"
#include "test/core.h"
#include "test/engine.h"
#include "test/full_writer.h"

namespace dllm::rtl {
namespace {

constexpr std::uint32_t kTiles = 2;

/// Source of random matrix programs. gp1 and gp2 hold addresses of operands, gp3 that of a result, gp4 and gp5 lengths;
/// a1 is where tensors are, a2 where results go.
class MatrixWriter : public ProgramText {
 public:
  MatrixWriter(Vectors& random, const npu::MachineConfig& config)
      : ProgramText(random, 6),
        vlen_(static_cast<std::uint32_t>(config.vlen)),
        mlen_(static_cast<std::uint32_t>(config.mlen)),
        blen_(static_cast<std::uint32_t>(config.blen)),
        hlen_(static_cast<std::uint32_t>(config.hlen)),
        block_(static_cast<std::uint32_t>(
            std::max({8, config.weight.block, config.activation.block, config.vector_kv.block}))),
        own_activation_(mx_format_number(config.activation)),
        two_formats_(config.matrix_kv != config.weight),
        others_(random, config) {}

  /// Registers, and all of matrix SRAM.
  void begin() {
    registers();
    control("prefetch_m_rows", kTiles * mlen_);
    set(1, 0);
    set(2, 0);
    line("H_PREFETCH_M gp1, gp2, a1, 0, 0");
  }

  void step() {
    switch (random_.below(11)) {
      case 0:
        return load_matrix();
      case 1:
        return load_vectors();
      case 2:
        return store_vectors();
      case 3:
      case 4:
        return tiles();
      case 5:
        return vectors();
      case 6:
        return heads(false);
      case 7:
        return heads(true);
      case 8:
        return looped_tiles();
      default:
        return others();
    }
  }

 private:
  /// What the steps expect: addresses of tensors and of rows, and products of whole tiles.
  void registers() {
    const std::pair<int, std::uint64_t> bases[] = {{1, kTensors}, {2, kTensors + 2 * kTensorBytes}};
    for (const auto& [number, base] : bases) {
      set(1, base >> 32);
      set(2, base & 0xffffffff);
      line("C_SET_ADDR_REG a{}, gp1, gp2", number);
    }
    set(4, kTensorBytes);
    line("C_SET_SCALE_REG gp4");
    control("mm_rows", blen_);
    for (std::uint32_t r = 8; r <= 10; ++r) set(r, random_.below(kOperands) * vlen_);
  }
  /// Any vector, scalar and control instructions. Partial sums stay in the accumulators meanwhile.
  void others() {
    others_.registers();
    for (std::uint32_t i = 2 + random_.below(10); i > 0; --i)
      random_.one_in(8) ? others_.loop() : others_.instruction();
    lines(others_.take());
    registers();
  }
  /// A tile in the format of the sums' earlier products.
  std::uint32_t tile() {
    std::uint32_t number = random_.below(kTiles);
    if (sums_in_second_ && second_[number] != *sums_in_second_) number ^= 1;
    sums_in_second_ = second_[number];
    return number * mlen_ * mlen_;
  }
  /// The address of `rows` rows of MLEN lanes of vector SRAM.
  std::uint32_t operand(std::uint32_t rows) {
    return random_.below(kOperands + 1 - std::min(rows, kOperands)) * vlen_ + random_.below(vlen_ / mlen_) * mlen_;
  }
  std::uint32_t target(std::uint32_t width) {
    return (random_.one_in(3) ? random_.below(kOperands - 8) : kOperands + random_.below(64)) * vlen_ +
           random_.below((vlen_ - width) / blen_ + 1) * blen_;
  }
  void elsewhere() {
    for (std::uint32_t i = random_.below(3) * random_.below(8); i > 0; --i) switch (random_.below(4)) {
        case 0:
          line("S_ADDI_INT gp7, gp7, {}", random_.below(100));
          break;
        case 1:
          line("M_SUM");
          break;
        case 2:
          line("V_ADD_VV gp8, gp9, gp10");
          break;
        default:
          line("C_FENCE");
      }
  }

  /// Offset in elements, whole blocks and bytes in every format, so that `rows` rows stay within the tensor.
  void place(std::uint32_t rows, std::uint32_t cols, bool strided, std::uint32_t stride) {
    const std::uint32_t room = 8192 - (rows - 1) * (strided ? stride : cols) - cols;
    set(2, random_.below(room / block_) * block_);
    if (strided) {
      set(4, stride);
      line("C_SET_STRIDE_REG gp4");
    }
  }
  std::uint32_t stride(std::uint32_t rows, std::uint32_t cols) {
    return random_.below(std::min(3 * cols, (8192 - cols) / rows) / block_) * block_;
  }

  /// With two formats whole tiles: rows of a product must have one.
  void load_matrix() {
    std::uint32_t rows = 1 + random_.below(kTiles * mlen_ / (random_.one_in(2) ? 4 : 1)), first = 0, second = 0;
    if (two_formats_) rows = mlen_;
    const std::uint32_t far = stride(rows, mlen_);
    const bool strided = random_.one_in(2);
    control("prefetch_m_rows", rows);
    first = two_formats_ ? random_.below(kTiles) * mlen_ : random_.below(kTiles * mlen_ + 1 - rows);
    set(1, first * mlen_);
    place(rows, mlen_, strided, far);
    second = random_.below(2);
    if (two_formats_) second_[first / mlen_] = second == 1;
    line("H_PREFETCH_M gp1, gp2, a1, {}, {}, {}", strided ? 1 : 0, second, random_.below(16));
  }
  /// Rows in the lanes' own format now and then, as programs of models move them.
  void plain_vectors(bool begin) {
    if (begin) plain_ = random_.one_in(3);
    if (plain_) control("format_activation", begin ? mx_format_number({}) : own_activation_);
  }
  /// Now and then more than the core moves as a group.
  std::uint32_t vector_rows() { return 1 + random_.below(random_.one_in(4) ? 40 : 6); }
  void load_vectors() {
    const std::uint32_t rows = vector_rows(), far = stride(rows, vlen_);
    const bool strided = random_.one_in(2);
    control("prefetch_v_rows", rows);
    set(1, random_.below(kOperands - rows) * vlen_);
    place(rows, vlen_, strided, far);
    plain_vectors(true);
    line("H_PREFETCH_V gp1, gp2, a{}, {}, {}", random_.one_in(4) ? 2 : 1, strided ? 1 : 0, random_.below(2));
    plain_vectors(false);
  }
  void store_vectors() {
    const std::uint32_t rows = vector_rows(), far = stride(rows, vlen_);
    const bool strided = random_.one_in(2);
    control("store_v_rows", rows);
    set(1, random_.below(kOperands + 64 - rows) * vlen_);
    place(rows, vlen_, strided, far);
    plain_vectors(true);
    line("H_STORE_V gp1, gp2, a2, {}, {}", strided ? 1 : 0, random_.below(2));
    plain_vectors(false);
  }

  /// Address of a slice in the plain order: counted in elements, or in rows.
  std::uint32_t slice(std::uint32_t index) { return index * (random_.one_in(2) ? 1 : mlen_); }

  void tile_product(std::uint32_t rows) {
    const std::uint32_t block = random_.below(mlen_ / blen_) * blen_;
    if (random_.one_in(2)) {
      set(1, operand(rows));
      set(2, tile() + block * mlen_);
      line("M_TMM 0, gp1, gp2");
    } else {
      set(2, operand(rows));
      set(1, tile() + slice(block));
      line("M_MM 0, gp1, gp2");
    }
  }
  void tiles() {
    const std::uint32_t rows = random_.one_in(3) ? 1 + random_.below(blen_) : blen_;
    control("mm_rows", rows);
    sums_in_second_.reset();
    for (std::uint32_t i = random_.below(6); i > 0; --i) {
      tile_product(rows);
      if (random_.one_in(3)) elsewhere();
    }
    set(3, target(blen_));
    set(4, random_.below(3));
    line("M_MM_WO gp3, gp4, 0");
    control("mm_rows", blen_);
  }
  /// Products without anything in between.
  void looped_tiles() {
    const std::uint32_t block = random_.below(mlen_ / blen_) * blen_;
    sums_in_second_.reset();
    set(1, operand(blen_));
    set(2, tile() + block * mlen_);
    set(3, target(blen_));
    line("C_LOOP_START gp12, {}", 2 + random_.below(5));
    line("M_TMM 0, gp1, gp2");
    if (random_.one_in(2)) line("M_MM 0, gp2, gp1");
    line("C_LOOP_END gp12");
    line("M_MM_WO gp3, gp0, 0");
  }
  void vectors() {
    sums_in_second_.reset();
    for (std::uint32_t i = 1 + random_.below(3); i > 0; --i) {
      set(2, operand(1));
      set(1, tile() + slice(random_.below(mlen_ / blen_) * blen_));
      line("{} 0, gp1, gp2", random_.one_in(2) ? "M_MV" : "M_TMV");
    }
    elsewhere();
    set(3, target(blen_));
    line("M_MV_WO gp3, {}", random_.one_in(2) ? 0 : 4 * blen_);
  }

  void heads(bool single) {
    const std::uint32_t count = mlen_ / hlen_, rows = single ? 1 : (1 + random_.below(mlen_ / blen_)) * blen_;
    const std::uint32_t group = 1u << random_.below(static_cast<std::uint32_t>(std::countr_zero(count)) + 1);
    const std::uint32_t slices = count / group;
    const bool beside = random_.one_in(3);
    std::uint32_t cols = (1 + random_.below(mlen_ / blen_)) * blen_;
    if (beside && slices > 1) cols = std::clamp(cols, hlen_, std::max(hlen_, mlen_ / slices / blen_ * blen_));
    if (!single) control("bmm_rows", rows);
    control("bmm_cols", cols);
    control("bmm_group", group);
    control("bmm_layout", beside ? 1 : 0);
    sums_in_second_.reset();
    for (std::uint32_t i = 1 + random_.below(3); i > 0; --i) {
      set(2, operand(rows));
      if (random_.one_in(2)) {
        std::uint32_t at = random_.below((mlen_ - slices * hlen_) / hlen_ + 1) * hlen_;
        if (beside)
          at =
              random_.below(mlen_ / hlen_) * hlen_ * mlen_ + random_.below((mlen_ - slices * cols) / blen_ + 1) * blen_;
        else
          at = slice(at);
        head_product(single, "M_BMM", "M_BMV", tile() + at);
      } else {
        head_product(single, "M_BTMM", "M_BTMV",
                     tile() + random_.below((mlen_ - cols) / blen_ + 1) * blen_ * mlen_ +
                         random_.below((mlen_ - slices * hlen_) / hlen_ + 1) * hlen_);
      }
    }
    elsewhere();
    control("bmm_scale",
            random_.one_in(2) ? 0x3e000000u + random_.below(0x1000000) : static_cast<std::uint32_t>(random_.bits()));
    write_heads(single, count, rows, cols);
  }
  void head_product(bool single, const char* rows_name, const char* row_name, std::uint32_t address) {
    if (!single) {
      set(1, address);
      return line("{} 0, gp1, gp2", rows_name);
    }
    const std::uint32_t part = random_.below(address + 1);
    set(1, address - part);
    set(5, part);
    line("{} gp5, gp1, gp2", row_name);
  }
  void write_heads(bool single, std::uint32_t count, std::uint32_t rows, std::uint32_t cols) {
    std::uint32_t stride = 0, at = target(cols);
    if (random_.one_in(2) && count * cols <= vlen_) {
      stride = std::bit_ceil(cols);  // side by side
      at = target(vlen_);
      if (count * stride > vlen_) stride = 0;
    } else if (random_.one_in(3)) {
      stride = (rows + random_.below(3)) * vlen_;
    }
    control("bmm_head_stride", stride);
    set(3, at);
    line("{} gp3, 0", single ? "M_BMV_WO" : "M_BMM_WO");
  }

  static constexpr std::uint32_t kOperands = 96;  // rows
  std::uint32_t vlen_, mlen_, blen_, hlen_;
  std::uint32_t block_;           ///< of which offsets are multiples
  std::uint32_t own_activation_;  ///< number of the format
  bool two_formats_, plain_ = false;
  std::array<bool, kTiles> second_ = {};  ///< tiles in the format of keys and values
  std::optional<bool> sums_in_second_;
  FullWriter others_;
};

void fill_core(npu::MachineState& state, Vectors& random) {
  const auto lanes = static_cast<std::size_t>(state.config.vlen);
  for (std::size_t row = 0; row < EngineShape::kRows; ++row) {
    std::vector<npu::Bf16> values = random.row(state.config.vlen);
    // Infinities and NaNs in few rows only: they hide the rest of their products.
    const bool plain = !random.one_in(6);
    const std::uint32_t middle = random.one_in(4) ? 1 + random.below(230) : 120, spread = 1 + random.below(16);
    for (npu::Bf16& value : values)
      if (plain) value = static_cast<npu::Bf16>((random.bits() & 0x807fu) | ((middle + random.below(spread)) << 7));
    std::copy(values.begin(), values.end(), state.vram.data() + row * lanes);
  }
  for (std::uint32_t i = 0; i < EngineShape::kFpWords; ++i) state.fp_mem[i] = random.any();
  for (std::uint32_t i = 0; i < EngineShape::kIntWords; ++i)
    state.int_mem[i] = static_cast<std::uint32_t>(random.bits());
  state.reach_hbm(kTensors + kRegion);
  for (std::uint64_t i = 0; i < kRegion; ++i) {
    const bool scales = i / kTensorBytes % 2 == 1;
    std::uint8_t byte = static_cast<std::uint8_t>(random.bits());
    // Codes of which some blocks are zero and few are NaN; scales that are close together, with exceptions.
    if (!scales) byte = i / 32 % 16 == 3 ? 0 : (byte & 0x7f) == 0x7f && !random.one_in(8) ? 0x3a : byte;
    if (scales) byte = random.one_in(600) ? 255 : random.one_in(40) ? byte : static_cast<std::uint8_t>(118 + byte % 12);
    state.hbm[kTensors + i] = std::byte{byte};
  }
}

}  // namespace

CoreModel core_model(npu::MachineConfig config, CoreRunner run) {
  config.hbm_bytes = kTensors + kRegion;
  config.mram_elements = kTiles * static_cast<std::uint64_t>(config.mlen) * static_cast<std::uint64_t>(config.mlen);
  config.prefetch_m_rows = 0;
  return {config, run};
}

CoreResult check_core(const CoreModel& model, std::uint64_t instructions, std::uint64_t seed, MemoryTiming timing) {
  const npu::MachineConfig& config = model.config;
  Vectors random(seed);
  CoreResult total;
  if (std::getenv("DLLM_RTL_LONG") != nullptr) instructions *= 20;  // make nightly
  while (total.instructions < instructions) {
    MatrixWriter writer(random, config);
    writer.begin();
    for (int i = 0; i < 40; ++i) writer.step();
    const char* end = random.one_in(2) ? "C_BREAK\nM_SUM\n" : "";
    const npu::Program program = checked(npu::assemble(writer.take() + end, {.file = "random"}));
    npu::Machine machine = checked(npu::Machine::create(config)), memory = checked(npu::Machine::create(config));
    Vectors same(random.bits()), again = same;
    fill_core(machine.state(), same);
    fill_core(memory.state(), again);
    total.add(model.run(machine, memory, program, timing, false));
    if (total.wrong > 0 || total.times_apart > 0) break;
  }
  return total;
}

void expect_equal(const CoreResult& result) {
  ASSERT_EQ(result.wrong, 0u) << result.first;
  ASSERT_EQ(result.times_apart, 0u) << result.first;
  EXPECT_GT(result.values, 100u) << "the programs compute nothing";
  std::printf("%llu instructions (%llu products, %llu write-outs, %llu transfers), %lld cycles, %llu values\n",
              static_cast<unsigned long long>(result.instructions), static_cast<unsigned long long>(result.products),
              static_cast<unsigned long long>(result.write_outs), static_cast<unsigned long long>(result.transfers),
              static_cast<long long>(result.cycles), static_cast<unsigned long long>(result.values));
}

void expect_all_executed(const CoreModel& model, const CoreResult& result) {
  for (std::size_t op = 0; op < npu::kOpCount; ++op)
    EXPECT_EQ(result.executed.test(op), model.config.noise || static_cast<npu::Op>(op) != npu::Op::V_RED_DRAW)
        << npu::info(static_cast<npu::Op>(op)).mnemonic;
}

CoreTraps core_traps(const CoreModel& model, const std::string& text, bool loaded) {
  Vectors random(3);
  MatrixWriter writer(random, model.config);
  if (loaded) writer.begin();
  npu::Machine machine = checked(npu::Machine::create(model.config)),
               memory = checked(npu::Machine::create(model.config));
  Vectors same(4), again = same;
  fill_core(machine.state(), same);
  fill_core(memory.state(), again);
  const npu::Program program = checked(npu::assemble(
      writer.take() + text + "\nC_LOOP_START gp9, 3\nS_ADDI_INT gp8, gp8, 1\nC_LOOP_END gp9\n", {.file = "trap"}));
  const CoreResult result = model.run(machine, memory, program, {}, true);
  return {result.trap, result.machine_traps, result.first};
}

}  // namespace dllm::rtl
