#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "npu_core/machine/machine.h"
#include "npu_core/timing/simulator.h"
#include "test/coverage.h"
#include "test/trap_codes.h"
#include "test/vectors.h"

namespace dllm::rtl {

/// Lanes of the engine's models: 8 (sections of 4), 64 (sections of 16).
struct EngineShape {
  static constexpr std::uint32_t kRows = 512, kFpWords = 256, kIntWords = 512, kProgramWords = 4096;
};

/// Compares a program on the engine with the functional machine under the serial cycle simulator.
struct EngineResult {
  std::uint64_t instructions = 0;      ///< executed, loop instructions included
  std::uint64_t wrong = 0;             ///< registers and memory words that differ
  std::int64_t cycles = 0;             ///< of the engine, from the first decode to the last write
  std::int64_t expected = 0;           ///< of the simulator
  std::uint64_t units_apart = 0;       ///< instructions whose time differs from the simulator's
  std::uint64_t port_waits = 0;        ///< cycles in which a second row waits for the port taken by the previous result
  std::uint64_t transfers_longer = 0;  ///< cycles of transfers that the simulator moves faster than a row per cycle
  std::uint64_t loops_alone = 0;       ///< bubbles before loop instructions that are fetched separately
  int trap = 0;
  MachineTrap expected_trap;
  std::string first;  ///< the first difference

  void add(const EngineResult& other);
};

/// `machine` has the initial memories and runs the program; `memory` is a machine with the same HBM that serves the
/// engine's transfers, converted by its own code. The engine uses the simulator's transfer times, since DRAM is not
/// part of it.
struct RunSettings {
  std::string waves;             ///< a VCD file, if not empty and models were built with DLLM_RTL_WAVES
  bool may_trap = false;         ///< the engine must then trap as the machine does: where, why, in the same state
  Coverage* coverage = nullptr;  ///< what the program's instructions cover
};
EngineResult run_engine(npu::Machine& machine, npu::Machine& memory, const npu::Device& device,
                        const npu::Program& program, const RunSettings& settings = {});

/// How the engine of 8 lanes ends a program of these words: its trap (rtl/traps.svh) and gp1.
struct Halt {
  int trap = 0;
  std::uint32_t gp1 = 0;
};
Halt run_words(const std::vector<std::uint32_t>& words);

/// The device of the tests: latencies of the shipped profiles, memories of the models.
npu::Device engine_device(const std::string& noise_lanes = "0");
npu::MachineConfig engine_config(int vlen);

/// The engine's models: of 8 and 64 lanes, and of 8 with a noise generator for V_RED_DRAW.
enum class Shape : std::uint8_t { k8, k64, k8Draws };
/// Programs over all vector, scalar and control instructions.
EngineResult check_all(Shape shape, std::uint64_t instructions, std::uint64_t seed, Coverage* coverage = nullptr);
/// Programs that reach an access or a value at its limit or beyond. `counts`: how many trapped, by TrapCode.
EngineResult check_traps(Shape shape, int programs, std::uint64_t seed, std::array<int, 8>& counts,
                         Coverage* coverage = nullptr);

/// V_TOPK on rows of logits.
EngineResult check_router(int instructions);

/// Straight-line code over random registers, and loops, with instructions of one kind.
enum class ProgramKind : std::uint8_t { kSelect, kMap, kLanes, kReductions, kScalar, kMixed };
std::string random_program(Vectors& random, int vlen, ProgramKind kind, int instructions);
/// Runs random programs of a kind until that many instructions have been executed.
EngineResult check_programs(int vlen, ProgramKind kind, std::uint64_t instructions, std::uint64_t seed);
/// Sampling programs of the three forms (0: published, 1: chunked, 2: one pass), small shapes, and larger ones.
EngineResult check_sampling(int form, int variant, const std::string& waves = "");

}  // namespace dllm::rtl
