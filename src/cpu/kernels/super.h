#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/packed.h"
#include "numerics/tensor_type.h"

// The arithmetic `super`: products of int8 weights and 15-bit rows, summed as integers over super-blocks of K. It is
// designed for matrix tiles, which multiply 64 values of K at once and lose their advantage if sums must be scaled more
// often. docs/design/arithmetic.md defines it, operation by operation.
//
//   weights   per output and super-block one float W, and w8 in [-127, 127]; w is about W w8
//   rows      per row and super-block one float X, and q in [-16256, 16256] = 128 hi + lo, hi and lo bytes
//   product   total = fma(float(sum of w8 q over the super-block), W X, total), super-blocks ascending from 0
//
// Types of 8 and 6 bits: W = max |w| / 127 and w8 = w / W, rounded. Types of 4 and 5 bits: w8 comes from a table of 16
// or 32 bytes that the scale of a group of 32 weights chooses (minus a byte for the minimum), so that they take 4 or 5
// bits in memory.

namespace dllm::cpu {

/// Internal linkage, so that the linker cannot choose among copies compiled for different instruction sets.
#define DLLM_ALWAYS_INLINE [[gnu::always_inline]] constexpr

inline constexpr std::int64_t kSuperK = 512;     ///< K of a super-block; the last of a row may be shorter
inline constexpr std::int64_t kSuperStep = 128;  ///< K of a step of packed nibbles; super-blocks are padded to it
inline constexpr std::int64_t kSuperRows = 16;   ///< rows that are stored together, and that a tile holds
inline constexpr int kSuperPlanes = 2;           ///< bytes per value of a row
inline constexpr float kSuperRowCodes = 127 * 128;
/// Values of K whose products with BF16 and F16 weights are summed in two chains before they are added to the total.
inline constexpr std::int64_t kBf16Step = 32;
/// Pairs of panels that a call should have if the rows exceed L2, so that each of them is read once for all.
inline constexpr std::int64_t kSuperPairs = 8;

/// A row's length in memory, in values.
DLLM_ALWAYS_INLINE std::int64_t super_padded(std::int64_t k) { return (k + kSuperStep - 1) / kSuperStep * kSuperStep; }
DLLM_ALWAYS_INLINE std::int64_t super_blocks(std::int64_t k) { return (k + kSuperK - 1) / kSuperK; }
/// K of super-block `s`, padded.
DLLM_ALWAYS_INLINE std::int64_t super_block_k(std::int64_t k, std::int64_t s) {
  const std::int64_t rest = super_padded(k) - s * kSuperK;
  return rest < kSuperK ? rest : kSuperK;
}

/// Tables of 16 bytes, one entry per code; docs/design/arithmetic.md says which types read which.
///   [0, 511)   level - 255 of 255ths, code - 8: level (code - 8) 127 / 2040
///   then 505   level - 252 of fifteenths: level code / 15, modulo 256
///   then 9     a shift: an E2M1 value, 127 / 6 of it, over 2^shift
///   then 505   of 32 bytes: level - 252 of thirty-firsts: level code / 31, modulo 256
///   then 511   for each of IQ4, IQ3_XXS and IQ3_S: level - 255 of 255ths of the type's values v: level v 127 / (255 V)
///              with the largest V
/// All to nearest, ties away from zero.
inline constexpr int kSuperLevels = 255, kSuperAffine = 252, kSuperShifts = 9;
inline constexpr int kSuperAffineTables = 2 * kSuperLevels + 1;
inline constexpr int kSuperShiftTables = kSuperAffineTables + 2 * kSuperAffine + 1;
inline constexpr int kSuperFiveTables = kSuperShiftTables + kSuperShifts;
inline constexpr int kSuperValueTables = kSuperFiveTables + 2 * (2 * kSuperAffine + 1);
inline constexpr int kSuperEnd = kSuperValueTables + 3 * (2 * kSuperLevels + 1);
static_assert(kSuperEnd * 16 <= 65536, "offsets of tables have 16 bits");
struct alignas(64) SuperTables {
  std::int8_t bytes[kSuperEnd * 16];
};
extern const SuperTables kSuperTables;

/// What turns the nibbles of a type into w8.
enum class Nibbles : std::uint8_t {
  kPlain,   ///< a table
  kMinima,  ///< a table, minus the group's minimum
  kFives,   ///< a table of 32 bytes, whose second half a fifth bit chooses, minus the group's minimum
};

/// A panel of 16 outputs: super-blocks one after the other, each with its codes, its levels and 16 floats W.
///
///   codes    bytes: [k / 64][16 outputs][64 k] of w8, the layout of a tile of weights.
///            nibbles: [k / 128][16 outputs][64 bytes], byte i holds k = i below and k = 64 + i above
///   levels   nibbles: [k / 128][16 outputs][4 groups] 16-bit offsets into kSuperTables
///   minima   of types that have them: [k / 128][16 outputs][4 groups] bytes, subtracted from the table's
///   fifths   of types of 5 bits: [k / 128][16 outputs][128 bits], the codes' highest bits
struct SuperLayout {
  bool nibbles = false;
  bool minima = false;
  bool fives = false;
  std::int64_t k = 0;
  std::int64_t bytes = 0;  ///< of the panel

  DLLM_ALWAYS_INLINE std::int64_t code_bytes(std::int64_t block_k) const {
    return nibbles ? block_k * 8 : block_k * 16;
  }
  DLLM_ALWAYS_INLINE std::int64_t level_bytes(std::int64_t block_k) const { return nibbles ? block_k : 0; }
  DLLM_ALWAYS_INLINE std::int64_t minima_offset(std::int64_t block_k) const {
    return code_bytes(block_k) + level_bytes(block_k);
  }
  DLLM_ALWAYS_INLINE std::int64_t fifths_offset(std::int64_t block_k) const {
    return minima_offset(block_k) + (minima ? block_k / 2 : 0);
  }
  DLLM_ALWAYS_INLINE std::int64_t block_bytes(std::int64_t block_k) const {
    return fifths_offset(block_k) + (fives ? 2 * block_k : 0) + 64;
  }
};

/// Whether weights of this type support the arithmetic.
bool runs_super(TensorType type);
/// Whether products with float weights of this K are computed in steps. Their panels are those of `exact` (packed.h).
constexpr bool runs_in_steps(TensorType type, std::int64_t k) {
  return (type == TensorType::kBF16 || type == TensorType::kF16) && k % kBf16Step == 0;
}
/// `k` is a multiple of the type's block; runs_super(type).
SuperLayout super_layout(TensorType type, std::int64_t k);
/// As pack_panel(): `count` <= 16 rows of the file, `row_bytes` apart; outputs beyond are zero. `panel` is aligned
/// to 64.
void pack_super_panel(TensorType type, const std::uint8_t* rows, std::int64_t row_bytes, int count, std::int64_t k,
                      std::uint8_t* panel);

/// Rows for products with such panels, in groups of 16: per super-block, group and plane (hi, lo) the bytes [k / 4][16
/// rows][4 k], the layout of a tile of rows. Rows beyond the last are zero. (If a group's super-blocks were contiguous,
/// all groups of a super-block would share the same sets of L2.)
struct SuperRows {
  std::int8_t* values = nullptr;
  float* scales = nullptr;       ///< [group][super-block][16 rows]: X
  std::int32_t* sums = nullptr;  ///< [group][super-block][plane][16 rows]: of the bytes
  std::int64_t groups = 0;
  std::int64_t first_row = 0;  ///< of the product, among these

  DLLM_ALWAYS_INLINE static std::int64_t group_bytes(std::int64_t k) {
    return super_padded(k) * kSuperRows * kSuperPlanes;
  }
  DLLM_ALWAYS_INLINE std::int8_t* plane(std::int64_t k, std::int64_t group, std::int64_t s, int p) const {
    const std::int64_t in_block = (group * kSuperPlanes + p) * super_block_k(k, s);
    return values + (s * kSuperK * kSuperPlanes * groups + in_block) * kSuperRows;
  }
  DLLM_ALWAYS_INLINE float* scale(std::int64_t k, std::int64_t group, std::int64_t s) const {
    return scales + (group * super_blocks(k) + s) * kSuperRows;
  }
  DLLM_ALWAYS_INLINE std::int32_t* sum(std::int64_t k, std::int64_t group, std::int64_t s, int p) const {
    return sums + ((group * super_blocks(k) + s) * kSuperPlanes + p) * kSuperRows;
  }
};

#undef DLLM_ALWAYS_INLINE

}  // namespace dllm::cpu
