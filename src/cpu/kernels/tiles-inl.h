#pragma once

// Compiled once for each kind of matrix tile (AMX, its emulation).

namespace dllm::cpu::DLLM_ISA {
namespace {

constexpr std::int64_t kTileBytes = 1024, kTileWords = 256;

/// If all rows of a product take at most this many bytes, they stay in L2 while panel after panel is multiplied, next
/// to the panels' weights and sums.
constexpr std::int64_t kResidentRows = 1024 * 1024;

/// Palette 1: eight tiles of 16 rows of 64 bytes. Constant, so that no store to it can be delayed or omitted (GCC 12
/// treats _tile_loadconfig as a read of eight bytes).
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
constexpr TileConfig kTileConfig;

/// GCC's tile loads and stores do not declare that they access memory.
inline void tile_barrier() { asm volatile("" ::: "memory"); }

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
