#pragma once

#include "npu_core/machine/config.h"
#include "numerics/mx.h"

namespace dllm::test {

/// A machine for random models of two layers with heads of 16 lanes, all formats MXINT8.
inline npu::MachineConfig small_machine() {
  npu::MachineConfig m;
  m.blen = 4, m.mlen = 64, m.vlen = 64, m.hlen = 16;
  m.vram_elements = std::uint64_t{64} * 4096;
  m.mram_elements = std::uint64_t{64 * 64} * 32;
  m.hbm_bytes = std::uint64_t{1} << 26;
  m.weight = m.matrix_kv = m.vector_kv = m.matrix_input = *mx_format_from_name("mxint8:16:ocp");
  return m;
}

}  // namespace dllm::test
