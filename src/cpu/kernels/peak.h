#pragma once

#include <cstddef>
#include <cstdint>

// Loops that do nothing but the instruction which bounds a kind of kernel, for the peak of the machine at hand. Like
// kernel_set.h, this header stands on its own.

namespace dllm::cpu {

enum class PeakKind { kInt8, kBf16, kF32 };

/// One instruction (or sequence) in a loop with enough independent accumulators to hide its latency. Written as one
/// block of assembly: nothing for a compiler to spill, contract or remove, and what the disassembly shows is the
/// source.
struct PeakLoop {
  const char* name;  ///< "vpdpbusd zmm"
  PeakKind kind;
  double ops_per_round;  ///< a multiply and an add are two
  void (*run)(std::int64_t rounds);
};

inline constexpr int kMaxPeakLoops = 12;
/// Those that this processor runs; returns their number.
int list_peak_loops(PeakLoop (&loops)[kMaxPeakLoops]);

/// Reads `bytes`, a multiple of 1024, once, from a 64-byte aligned address: as 1, 2 or 4 equal parts at the same time.
/// Returns the bits that any of its 64-bit words has, so that none may be left out.
std::uint64_t peak_read(const std::byte* data, std::size_t bytes, int streams);
inline constexpr int kPeakStreams[] = {1, 2, 4};

}  // namespace dllm::cpu
