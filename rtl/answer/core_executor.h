#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "npu_core/device/device.h"
#include "npu_core/device/override.h"
#include "npu_core/machine/machine.h"
#include "test/core.h"
#include "test/memory_model.h"

namespace dllm::rtl {

/// What a core has executed, program by program.
struct CoreTotals {
  std::uint64_t programs = 0;
  CoreResult result;           ///< sums; `wrong` and `times_apart` are 0, or run() would have failed
  std::int64_t simulated = 0;  ///< cycles of the cycle simulator, serial issue, with the device's DRAM
  std::uint64_t compared = 0;  ///< words of registers and memories, and bytes of HBM
  double seconds = 0;          ///< that the core's model took, on this processor
};

/// Runs a backend's programs on a verilated core (npu::NpuOptions::execute). Memory is the HBM of the backend's
/// machine, behind the core's AXI4 port: what the host reads there afterwards was computed by the core. The host writes
/// the program and INT_MEM, resets the core and starts it.
///
/// Every program also runs on a functional machine of its own, under the cycle simulator. Registers, the three SRAM
/// domains and the whole HBM are compared after it, times after each instruction.
class CoreExecutor {
 public:
  virtual ~CoreExecutor() = default;
  /// Errors: kMismatch (the first difference, and where in the program), kResource (more words than instruction SRAM),
  /// the machine's traps, if the core traps at the same instruction and leaves the same state.
  virtual Expected<npu::RunResult> run(npu::Machine& host, const npu::Program& program) = 0;
  /// Vector and FP SRAM as they are in `state`, for the next program. Answers never need it: a program finds there what
  /// the one before left, and zeros at first.
  virtual void set_vectors(const npu::MachineState& state) = 0;

  const CoreTotals& totals() const { return totals_; }

 protected:
  CoreTotals totals_;
};

/// A model of the core, and the device profile that it implements.
struct CoreShape {
  std::string device;  ///< file
  std::uint32_t vector_rows = 0, fp_words = 0, int_words = 0, program_words = 0;
  /// Errors: those of npu::Machine::create().
  Expected<std::unique_ptr<CoreExecutor>> (*make)(const CoreShape& shape, const npu::Device& device,
                                                  const npu::MachineConfig& config, MemoryTiming timing) = nullptr;
  std::vector<npu::Override> overrides{};  ///< of the profile's keys
};
/// The device and the machine of a shape, with as much HBM as its programs need. Errors: those of load_device(); kUsage
/// if the profile's memories are not the model's.
struct CoreDevice {
  npu::Device device;
  npu::MachineConfig config;
};
Expected<CoreDevice> core_device(const CoreShape& shape);

/// 8 lanes, BLEN 4: answer-8.toml.
CoreShape answer8();
/// The device that the build was configured with (DLLM_RTL_DEVICE, DLLM_RTL_SET), and keys that are no parameters of
/// its hardware. Errors: those of core_parameters().
Expected<CoreShape> answer_device(const std::vector<npu::Override>& overrides);

}  // namespace dllm::rtl
