#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "npu_core/machine/machine.h"
#include "test/memory_model.h"

namespace dllm::rtl {

/// Kinds of instructions whose times follow different rules.
enum class Part : std::uint8_t { kElsewhere, kProduct, kWriteOut, kTransfer, kLoop };
inline constexpr std::size_t kParts = 5;

/// Instructions of a kind that were executed, and their cycles.
struct PartCycles {
  std::uint64_t instructions = 0;
  std::int64_t core = 0;       ///< loop instructions take theirs in the instruction before them
  std::int64_t simulator = 0;  ///< of the cycle simulator, serial issue
};

struct CoreResult {
  std::uint64_t instructions = 0, products = 0, write_outs = 0, transfers = 0;
  std::uint64_t wrong = 0;        ///< registers, words and bytes that differ
  std::uint64_t times_apart = 0;  ///< instructions whose time is not the simulator's by the rules of core.cpp
  std::uint64_t values = 0;       ///< results of write-outs that are finite and not zero, at the end of programs
  std::int64_t cycles = 0;        ///< of the core
  int trap = 0;
  bool machine_traps = false;
  std::bitset<npu::kOpCount> executed;  ///< by npu::Op
  std::string first;                    ///< the first difference
  std::array<PartCycles, kParts> parts = {};
  std::int64_t loops_alone = 0;  ///< cycles of loop instructions that are fetched alone, and waits for a port
  std::int64_t fills = 0;        ///< cycles in which write-outs wait for the last product's results

  void add(const CoreResult& other);
};

/// Where the tests' tensors are: from below 4 GiB to beyond, and aligned to no beat and no page. Elements, then their
/// scales, then the same for what programs store.
inline constexpr std::uint64_t kTensors = 0x1'0000'0000 - 0x804, kTensorBytes = 0x4000, kRegion = 4 * kTensorBytes;

/// Runs a program on a core and on `machine`; `memory` is a machine with the same HBM, which serves the core. If the
/// machine traps and the program may, the core must trap at the same instruction, in the same state.
using CoreRunner = CoreResult (*)(npu::Machine& machine, npu::Machine& memory, const npu::Program& program,
                                  MemoryTiming timing, bool may_trap);

/// A model of the whole core, and the machine that it equals.
struct CoreModel {
  npu::MachineConfig config;
  CoreRunner run;
};
/// 8 lanes, 2 heads, draws: MXINT8 x MXINT4, a window of 32 bits; vectors in MXINT8 and BF16.
CoreModel core8();
/// 16 vector lanes, 8 of the array, BLEN 2, 1 head: MXFP6, vectors in MXFP4 and MXINT4.
CoreModel core16();
/// 16 lanes, 2 heads of two sub-arrays each, which share the blocks of 16: MXFP8 x MXFP8, a window of 64 bits.
CoreModel core_fp8();
/// With memories of the models' sizes.
CoreModel core_model(npu::MachineConfig config, CoreRunner run);

/// Programs of products, write-outs and transfers, with all vector, scalar and control instructions in between.
CoreResult check_core(const CoreModel& model, std::uint64_t instructions, std::uint64_t seed, MemoryTiming timing);
/// Fails the running test if anything differs; prints what was compared.
void expect_equal(const CoreResult& result);
/// Fails the running test if an instruction that the model has was not among them.
void expect_all_executed(const CoreModel& model, const CoreResult& result);
struct CoreTraps {
  int core = 0;  ///< value of rtl/traps.svh; 0: none
  bool machine = false;
  std::string difference;  ///< of their states, or where they end
};
/// How core and machine end this text and a loop, after loading matrix SRAM (or not).
CoreTraps core_traps(const CoreModel& model, const std::string& text, bool loaded = true);

}  // namespace dllm::rtl
