#pragma once

#include <initializer_list>
#include <utility>

#include "npu_core/machine/machine.h"
#include "npu_core/machine/semantics.h"

namespace dllm::rtl {

/// The functional machine, one instruction at a time.
class Golden {
 public:
  explicit Golden(int vlen) : state_(config(vlen)) {}

  static npu::MachineConfig config(int vlen) {
    npu::MachineConfig c;
    c.vlen = c.mlen = vlen;
    c.blen = 4;
    c.hlen = vlen <= 32 ? 4 : vlen / 16;
    c.vram_elements = static_cast<std::uint64_t>(vlen) * 64;
    c.mram_elements = static_cast<std::uint64_t>(vlen) * static_cast<std::uint64_t>(vlen);
    c.fp_words = c.int_words = 512;
    c.hbm_bytes = 4096;
    return c;
  }

  npu::MachineState& state() { return state_; }
  npu::Bf16* row(std::size_t index) {
    return state_.vram.data() + index * static_cast<std::size_t>(state_.config.vlen);
  }

  /// Returns false on a trap.
  bool run(npu::Op op, std::initializer_list<std::pair<npu::Field, std::uint32_t>> fields) {
    npu::Instruction instruction;
    instruction.op = op;
    for (const auto& [field, value] : fields) instruction.set(field, value);
    npu::ResolvedAccesses accesses;
    npu::Trap trap;
    return npu::resolve(state_, instruction, npu::info(op), accesses, trap) &&
           npu::semantics()[static_cast<std::size_t>(op)](state_, instruction, accesses, trap);
  }

 private:
  npu::MachineState state_;
};

}  // namespace dllm::rtl
