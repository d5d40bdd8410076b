#pragma once

#include <cstdint>

// What this processor and its system can run. Everything that is compiled once per instruction set and chosen as it
// runs asks here: the CPU backend's kernels, its measured peaks, and the loops of the accuracy simulator. (Functions
// under DLLM_CLONES, base/clones.h, are chosen by the loader before the program begins.)
//
// Uses only language headers, because src/cpu/kernels cross-compiles with nothing but a C++ runtime. Nothing is inline:
// sources that include this are compiled with instructions that the processor may lack.

namespace dllm {

enum class InstructionSet : std::uint8_t {
  kScalar,      ///< of every processor of the build's kind
  kAvx2,        ///< with FMA and F16C
  kAvxVnni,     ///< AVX2, and dot products of bytes
  kAvx512,      ///< F, BW, VL, DQ
  kAvx512Vnni,  ///< and dot products of bytes
  kAvx512Bf16,  ///< and dot products of BF16 pairs
  kAmx,         ///< kAvx512Vnni, and tiles of bytes. The first question asks the system for their state
  kAmxBf16,     ///< and tiles of BF16
  kNeon,        ///< of ARMv8.2, with dot products and half floats
  kNeonI8mm,    ///< and products of 2 x 8 by 8 x 2 bytes
};

/// Thread-safe. The system's refusal of AMX's state counts as "no".
bool runs(InstructionSet set);

}  // namespace dllm
