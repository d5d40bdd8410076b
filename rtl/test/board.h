#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "npu_core/assembler/program.h"
#include "npu_core/isa/encoding.h"
#include "npu_core/machine/machine.h"
#include "npu_core/timing/simulator.h"
#include "test/engine.h"
#include "test/random_start.h"
#if VM_TRACE
#include <verilated_vcd_c.h>
#endif

namespace dllm::rtl {

/// Start and duration of every instruction under serial issue.
class Trace final : public npu::TraceSink {
 public:
  struct Entry {
    std::uint32_t index = 0;
    npu::Op op = npu::Op::C_BREAK;
    std::int64_t cycles = 0;
  };
  void instruction(const npu::ExecutedInstruction& executed) override {
    entries.push_back({executed.event->index, executed.event->instruction->op, executed.done - executed.start});
  }
  void transfer(const npu::FinishedTransfer&) override {}
  std::vector<Entry> entries;
};

/// The engine's model with its host port.
template <class Model>
class Board {
 public:
  /// Registers and memories start with random values. No input is left undriven.
  Board() {
    model_.clk_i = model_.start_i = model_.host_write_i = 0;
    if constexpr (requires(Model& model) { model.dma_write_i; }) model_.dma_write_i = model_.dma_done_i = 0;
    if constexpr (requires(Model& model) { model.external_done_i; }) {
      model_.external_done_i = model_.external_read_i = model_.external_write_i = 0;
      model_.external_trap_i = 0;
    }
    if constexpr (requires(Model& model) { model.ar_ready_i; })
      model_.ar_ready_i = model_.r_valid_i = model_.aw_ready_i = model_.w_ready_i = model_.b_valid_i = 0;
    model_.length_i = 0;
    model_.rst_ni = 0;
    tick();
    model_.rst_ni = 1;
    tick();
  }
  void open_waves(const std::string& path) {
#if VM_TRACE
    if (path.empty()) return;
    Verilated::traceEverOn(true);
    waves_ = std::make_unique<VerilatedVcdC>();
    model_.trace(waves_.get(), 99);
    waves_->open(path.c_str());
#else
    (void)path;
#endif
  }
  void tick() {
    model_.eval();
    dump();
    model_.clk_i = 1;
    model_.eval();
    dump();
    model_.clk_i = 0;
  }
  void write(int space, std::uint32_t address, auto&& fill) {
    model_.host_write_i = 1;
    model_.host_space_i = static_cast<std::uint8_t>(space);
    model_.host_address_i = static_cast<std::uint16_t>(address);
    fill(model_.host_data_i);
    tick();
    model_.host_write_i = 0;
  }
  const auto& read(int space, std::uint32_t address) {
    model_.host_space_i = static_cast<std::uint8_t>(space);
    model_.host_address_i = static_cast<std::uint16_t>(address);
    tick();
    model_.eval();
    return model_.host_data_o;
  }
  /// Fills the vector, FP and INT SRAM and the instructions.
  void load(const npu::MachineState& state, const npu::Program& program) {
    const auto lanes = static_cast<std::size_t>(state.config.vlen);
    for (std::uint32_t row = 0; row < EngineShape::kRows; ++row)
      write(0, row, [&](auto& data) {
        const npu::Bf16* values = state.vram.data() + row * lanes;
        for (std::size_t i = 0; i < lanes; i += 2) data[i / 2] = std::uint32_t{values[i + 1]} << 16 | values[i];
      });
    for (std::uint32_t i = 0; i < EngineShape::kFpWords; ++i)
      write(1, i, [&](auto& data) { data[0] = state.fp_mem[i]; });
    for (std::uint32_t i = 0; i < EngineShape::kIntWords; ++i)
      write(2, i, [&](auto& data) { data[0] = state.int_mem[i]; });
    for (std::uint32_t i = 0; i < program.size(); ++i)
      write(3, i, [&](auto& data) { data[0] = *npu::encode(program.code[i]); });
  }
  Model& operator*() { return model_; }

 private:
  void dump() {
#if VM_TRACE
    if (waves_) waves_->dump(time_++);
#endif
  }
  std::unique_ptr<Model> owner_ = with_random_start<Model>();
  Model& model_ = *owner_;
#if VM_TRACE
  std::unique_ptr<VerilatedVcdC> waves_;
  std::uint64_t time_ = 0;
#endif
};

}  // namespace dllm::rtl
