#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "answer/core_executor.h"
#include "base/try.h"
#include "npu_core/timing/simulator.h"
#include "test/core_run.h"
#include "test/trap_codes.h"

namespace dllm::rtl {

template <class Model>
class VerilatedExecutor final : public CoreExecutor {
 public:
  /// `device` must outlive the executor.
  VerilatedExecutor(CoreShape shape, const npu::Device& device, npu::Machine reference, MemoryTiming timing)
      : shape_(std::move(shape)),
        device_(device),
        reference_(std::move(reference)),
        timing_(timing),
        board_(std::make_unique<Board<Model>>()) {
    // What no program has written is 0 in the machine.
    set_vectors(reference_.state());
  }

  void set_vectors(const npu::MachineState& state) override {
    const auto lanes = static_cast<std::size_t>(state.config.vlen);
    for (std::uint32_t row = 0; row < shape_.vector_rows; ++row)
      board_->write(0, row, [&](auto& data) {
        for (std::size_t i = 0; i < lanes; i += 2)
          data[i / 2] = std::uint32_t{state.vram[row * lanes + i + 1]} << 16 | state.vram[row * lanes + i];
      });
    for (std::uint32_t i = 0; i < shape_.fp_words; ++i)
      board_->write(1, i, [&](auto& data) { data[0] = state.fp_mem[i]; });
    if (&state == &reference_.state()) return;
    npu::MachineState& expected = reference_.state();
    for (std::size_t i = 0; i < shape_.vector_rows * lanes; ++i) expected.vram.data()[i] = state.vram[i];
    for (std::size_t i = 0; i < shape_.fp_words; ++i) expected.fp_mem[i] = state.fp_mem[i];
  }

  Expected<npu::RunResult> run(npu::Machine& host, const npu::Program& program) override {
    if (program.size() > shape_.program_words)
      return Error{ErrorCode::kResource,
                   fmt::format("a program of {} words does not fit the {} of the core's instruction SRAM",
                               program.size(), shape_.program_words),
                   "core in simulation", "fewer rows at once: a shorter answer, or a cache policy"};
    npu::MachineState& expected = reference_.state();
    copy_inputs(host.state(), expected);
    expected.reset_registers();
    npu::TimingOptions options;
    options.issue = npu::IssueMode::kSerial;
    DLLM_TRY(const auto simulator, npu::TimingSimulator::create(device_, expected.config, program, options));
    CoreTrace trace(device_, expected.config);
    simulator->set_trace(&trace);
    npu::RunOptions run;
    run.observer = simulator.get();
    const Expected<npu::RunResult> ran = reference_.run(program, run);
    const std::optional<MachineTrap> trap = ran ? std::nullopt : machine_trap(ran.error());
    if (!ran && !trap) return ran.error();
    // Instructions that find out late have been issued in the machine.
    if (trap && !trace.entries.empty() && trace.entries.back().index == trap->index) trace.entries.pop_back();

    CoreResult result;
    result.instructions = trace.entries.size();
    for (const CoreTrace::Entry& entry : trace.entries) result.executed.set(static_cast<std::size_t>(entry.op));
    DLLM_TRY(std::optional<DramPort> dram, dram_port(device_, timing_));
    launch(host, program, {trace, expected.config.blen, trap ? std::optional(trap->index) : std::nullopt},
           std::move(dram), result);
    compare(host.state(), result);
    totals_.result.add(result);
    totals_.simulated += simulator->finish().total;
    ++totals_.programs;
    if (result.wrong > 0 || result.times_apart > 0)
      return Error{ErrorCode::kMismatch, result.first, fmt::format("program {} on the core", totals_.programs), ""};
    return ran;
  }

 private:
  /// What the host has written since the last program.
  static void copy_inputs(const npu::MachineState& from, npu::MachineState& to) {
    to.reach_hbm(from.hbm.size());
    std::memcpy(to.hbm.data(), from.hbm.data(), from.hbm.size());
    std::memcpy(to.int_mem.data(), from.int_mem.data(), from.int_mem.size() * sizeof(std::uint32_t));
  }

  void launch(npu::Machine& host, const npu::Program& program, ExpectedRun expected, std::optional<DramPort> dram,
              CoreResult& result) {
    const auto began = std::chrono::steady_clock::now();
    Model& model = **board_;
    // Registers are undefined when a program starts; the machine's are 0, which a reset makes them.
    model.rst_ni = 0;
    board_->tick();
    model.rst_ni = 1;
    board_->tick();
    for (std::uint32_t i = 0; i < shape_.int_words; ++i)
      board_->write(2, i, [&](auto& data) { data[0] = host.state().int_mem[i]; });
    for (std::uint32_t i = 0; i < program.size(); ++i)
      board_->write(3, i, [&](auto& data) { data[0] = *npu::encode(program.code[i]); });
    npu::MachineState start(reference_.state().config, npu::Memories::kIntegers);
    set_inputs(model, start);
    MemoryModel memory(host, timing_, totals_.programs + 1, std::move(dram));
    // More than any program takes with the slowest memory: one that hangs ends here.
    constexpr std::int64_t kLeast = 4'000'000, kPerInstruction = 200;
    expected.most_cycles = kLeast + kPerInstruction * static_cast<std::int64_t>(expected.trace.entries.size());
    execute(*board_, memory, program, expected, result);
    totals_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }

  void compare(const npu::MachineState& host, CoreResult& result) {
    const npu::MachineState& expected = reference_.state();
    compare_registers(**board_, expected, result);
    const auto lanes = static_cast<std::size_t>(expected.config.vlen);
    for (std::uint32_t row = 0; row < shape_.vector_rows; ++row) {
      const auto& data = board_->read(0, row);
      for (std::size_t i = 0; i < lanes; ++i) {
        const auto found = static_cast<npu::Bf16>(data[i / 2] >> (i % 2 * 16));
        const npu::Bf16 want = expected.vram[row * lanes + i];
        if (found != want) differs(result, fmt::format("row {} lane {} is {:04x}, not {:04x}", row, i, found, want));
        if ((want & 0x7fffu) != 0 && (want & 0x7f80u) != 0x7f80u) ++result.values;
      }
    }
    compare_words(1, shape_.fp_words, expected.fp_mem, "FP", result);
    compare_words(2, shape_.int_words, expected.int_mem, "INT", result);
    if (std::memcmp(host.hbm.data(), expected.hbm.data(), host.hbm.size()) != 0)
      for (std::size_t at = 0; at < host.hbm.size(); ++at)
        if (host.hbm[at] != expected.hbm[at])
          differs(result, fmt::format("byte {:#x} of memory is {:02x}, not {:02x}", at,
                                      static_cast<unsigned>(host.hbm[at]), static_cast<unsigned>(expected.hbm[at])));
    totals_.compared += shape_.vector_rows * lanes + shape_.fp_words + shape_.int_words + host.hbm.size();
  }

  template <class Words>
  void compare_words(int space, std::uint32_t count, const Words& expected, const char* name, CoreResult& result) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t found = board_->read(space, i)[0];
      if (found != expected[i])
        differs(result, fmt::format("{} word {} is {:#x}, not {:#x}", name, i, found, expected[i]));
    }
  }

  CoreShape shape_;
  const npu::Device& device_;
  npu::Machine reference_;
  MemoryTiming timing_;
  std::unique_ptr<Board<Model>> board_;
};

/// CoreShape::make of a model.
template <class Model>
Expected<std::unique_ptr<CoreExecutor>> make_executor(const CoreShape& shape, const npu::Device& device,
                                                      const npu::MachineConfig& config, MemoryTiming timing) {
  DLLM_TRY(npu::Machine reference, npu::Machine::create(config));
  return std::unique_ptr<CoreExecutor>(
      std::make_unique<VerilatedExecutor<Model>>(shape, device, std::move(reference), timing));
}

}  // namespace dllm::rtl
