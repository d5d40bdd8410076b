#include "npu_core/timing/scoreboard.h"

#include <algorithm>

#include "base/integers.h"

namespace dllm::npu {
namespace {

/// Rows of the matrix SRAM that share a valid bit: as many as the shipped profiles transfer at once.
constexpr std::uint64_t kMatrixRows = 64;
/// Words of a scalar memory that share a valid bit.
constexpr std::uint64_t kWords = 16;

}  // namespace

Scoreboard::Scoreboard(const MachineConfig& config) {
  const auto mlen = static_cast<std::uint64_t>(config.mlen);
  shift_ = {log2_exact(config.vlen), log2_exact(static_cast<std::int64_t>(std::min(mlen, kMatrixRows) * mlen)),
            log2_exact(kWords), log2_exact(kWords)};
  const std::uint64_t sizes[] = {config.vram_elements, config.mram_elements, config.fp_words, config.int_words};
  for (std::size_t s = 0; s < kSpaces; ++s)
    cells_[s] = LazyArray<Cell>(static_cast<std::size_t>((sizes[s] >> shift_[s]) + 1));
}

Cause cause_of(Engine writer) {
  switch (writer) {
    case Engine::kMatrix:
    case Engine::kDrain:
      return Cause::kMatrix;
    case Engine::kVector:
      return Cause::kVector;
    case Engine::kLoadMatrix:
    case Engine::kLoadVector:
    case Engine::kStore:
      return Cause::kMemory;
    default:
      return Cause::kScalar;
  }
}

}  // namespace dllm::npu
