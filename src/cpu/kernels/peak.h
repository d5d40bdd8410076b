#pragma once

#include <cstddef>
#include <cstdint>

// Loops of only the instruction that bounds a kind of kernel, to measure this machine's peak. Like kernel_set.h, this
// header has no dependencies.

namespace dllm::cpu {

/// Those of matrix tiles apart: only some kernels run on them.
enum class PeakKind { kInt8, kBf16, kF32, kInt8Tiles, kBf16Tiles };

/// One instruction (or sequence) in a loop with enough independent accumulators to hide its latency. Written as one
/// block of assembly, so that a compiler cannot spill, contract or remove anything, and the disassembly equals the
/// source.
struct PeakLoop {
  const char* name;  ///< "vpdpbusd zmm"
  PeakKind kind;
  double ops_per_round;  ///< a multiply and an add are two
  void (*run)(std::int64_t rounds);
};

inline constexpr int kMaxPeakLoops = 12;
/// Fills in those that this processor supports; returns their number.
int list_peak_loops(PeakLoop (&loops)[kMaxPeakLoops]);

/// Reads `bytes`, a multiple of 1024, once, from a 64-byte aligned address: as 1, 2 or 4 equal parts at the same time.
/// Returns the OR of all 64-bit words, so that none may be skipped.
std::uint64_t peak_read(const std::byte* data, std::size_t bytes, int streams);
inline constexpr int kPeakStreams[] = {1, 2, 4};

}  // namespace dllm::cpu
