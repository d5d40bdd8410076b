#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/packed.h"
#include "cpu/kernels/super.h"
#include "numerics/tensor_type.h"

// The kernels of one instruction set, as a table of functions over plain pointers. Uses only language headers, so that
// src/cpu/kernels cross-compiles with nothing but a C++ runtime.
//
// Every set computes every float with the same operations in the same order (16 lanes, fused multiply-adds where the
// source says fma, one fixed tree for sums over lanes), so all sets agree BIT FOR BIT with `scalar`, the reference.
// VDPBF16PS is used because it is such a chain of fused multiply-adds (RowForm); Arm's BFDOT and BFMMLA round pairs or
// quads differently, and not the same on all processors, so they are not used.

namespace dllm::cpu {

/// Rows quantized to int8 for products with quantized weights: value = q * scale, one scale per 32 values. Arrays over
/// groups are dense: [rows][k / 32] or [rows][k / 16].
inline constexpr std::int64_t kScaleBlock = 32;
inline constexpr std::int64_t kSumBlock = 16;  ///< Q6_K has a weight scale per 16, so sums are kept per 16

struct QuantizedRows {
  std::int8_t* values = nullptr;  ///< [rows][stride], |q| <= 127
  float* scales = nullptr;        ///< per 32
  std::int32_t* sums = nullptr;   ///< per 16: sums of q, for the weights' offsets
  std::int64_t stride = 0;        ///< bytes from row to row
  // Read by pair tiles (pairs-inl.h) instead of the scales; derived from them, see derive_groups().
  std::int32_t* exponents = nullptr;  ///< per 32: the scale's exponent, in position to be added to a float's
  std::int32_t* multiples = nullptr;  ///< per 32: its mantissa, as the byte offset in a table of [4][16] floats
  float* offsets = nullptr;           ///< per 32: -scale * sum
  /// Per group of the weight's format: -zero * sum. Set for each product (fill_corrections()). With minima per 16 k,
  /// whose formats have no zero point, it is the bits of the float -scale * sum.
  std::int32_t* corrections = nullptr;
  bool regular = false;  ///< every scale is zero, or rounded and within [2^-60, 2^60]: exponents may be added
};

/// Fills exponents, multiples and offsets of groups [first, first + count), counted over all rows, from their scales
/// and sums; false if a scale does not permit `regular`.
bool derive_groups(const QuantizedRows& rows, std::int64_t first, std::int64_t count);
/// Whether corrections are such floats.
constexpr bool has_half_offsets(const PackedFormat& format) { return format.group == kSumBlock && format.has_min; }
/// Computes corrections[rows][k / group] from the sums.
void fill_corrections(const QuantizedRows& q, std::int64_t rows, std::int64_t k, const PackedFormat& format);

/// Rows of floats for products with packed floats are stored in groups of six, [k][6], each zero-filled to six rows:
/// one pointer then reaches every row of a tile, while separate rows of 4096 floats would share their sets of the L1
/// cache. The numbers beyond the last permit stores of whole vectors (interleave) and keep groups off each other's
/// sets.
///
/// With BF16 weights rows are first rounded to BF16, to nearest even: products are then exact in float32, and VDPBF16PS
/// adds them one after the other, each with one rounding, in the order k + 1, k of every pair (measured on Zen 5;
/// Intel's manual says the same). Every set computes two fused multiply-adds in that order. The instruction also treats
/// subnormal numbers as zero, so it is used only if none can occur: if weights and rows are all zero or within [2^-55,
/// 2^55), products and sums are multiples of 2^-124.
inline constexpr std::int64_t kRowGroup = 6;
enum class RowForm : std::uint8_t {
  kFloats,   ///< [k][6], for F32 and F16 weights
  kRounded,  ///< [k][6] of floats that are BF16 numbers
  kPairs,  ///< [k / 2][6] of words, k below k + 1: for sets that say bf16_dots(), regular weights and rows, and even k
  /// [k / 32][16 rows][32 k] of BF16, the layout of a tile: for sets that say bf16_tiles, regular weights and rows, and
  /// WeightPanels::in_steps.
  kTiles,
  /// F16 weights in_steps: a value x as BF16(x) and BF16(x - BF16(x)). All first parts as kRounded, then, after
  /// row_group_stride(), the second ones.
  kSplit,
  kSplitTiles,  ///< the same as [k / 32][part][16 rows][32 k]: for sets that say bf16_tiles, and regular rows
};
constexpr bool in_tiles(RowForm form) { return form == RowForm::kTiles || form == RowForm::kSplitTiles; }
constexpr bool in_parts(RowForm form) { return form == RowForm::kSplit || form == RowForm::kSplitTiles; }
constexpr std::int64_t row_group_stride(std::int64_t k) { return (k + 15) / 16 * 16 * kRowGroup + 32; }
/// Rows of a group, and floats from a group to the next.
constexpr std::int64_t rows_of_group(RowForm form) { return in_tiles(form) ? kSuperRows : kRowGroup; }
constexpr std::int64_t group_stride(RowForm form, std::int64_t k) {
  return (in_parts(form) ? 2 : 1) * (in_tiles(form) ? k / 2 * kSuperRows : row_group_stride(k));
}

/// The kind of operands of a product: each has its own kernels, and its own operands in LinearArgs.
enum class LinearOperands : std::uint8_t {
  kPlain,         ///< weights as stored in the file, and rows of floats
  kPackedFloats,  ///< panels of floats, and rows of floats in groups of six
  kPackedCodes,   ///< panels of integer codes, and rows quantized to int8
  kSuper,         ///< panels and rows of the arithmetic `super` (super.h)
};

/// When kPackedCodes decodes codes of less than a byte. The bits of the results are the same.
enum class Decoding : std::uint8_t {
  kDefault,   ///< what the set is tuned for
  kPerBlock,  ///< once per block of K for all rows, for per_block_rows of the set and more
};

/// Operands of kPlain.
struct PlainOperands {
  TensorType type = TensorType::kF32;
  const std::byte* weight = nullptr;  ///< rows of k elements, `row_bytes` apart
  std::int64_t row_bytes = 0;
  /// Formats other than F32, F16 and BF16: the codec's decoder and the size of its blocks.
  void (*dequantize)(const std::byte* src, float* dst, std::int64_t count) = nullptr;
  std::int64_t block_elems = 1;
  std::int64_t block_bytes = 4;
  const float* x = nullptr;  ///< [rows][k]
};

/// The weights of all packed kinds.
struct WeightPanels {
  const PackedFormat* format = nullptr;  ///< all but kSuper
  const PackedLayout* layout = nullptr;  ///< all but kSuper
  const std::uint8_t* data = nullptr;
  bool regular = false;                ///< pack_panel() was true for every panel: exponents may be added
  bool in_steps = false;               ///< BF16, F16: summed as the arithmetic `super` says (kBf16Step)
  const SuperLayout* super = nullptr;  ///< kSuper
};

/// The rows of kPackedFloats.
struct GroupedRows {
  const float* groups = nullptr;  ///< [groups of rows][group_stride(form, k)], from interleave()
  RowForm form = RowForm::kFloats;
  std::int64_t first_row = 0;  ///< of the product's rows in `groups`
};

/// out[m][n - out_origin] = sum_k x[m][k] w[n][k] + bias[n]
///
/// `operands` says which of the members below it hold the operands; the others are not read. (A std::variant would put
/// functions of the standard library into every instruction set's translation unit, and the linker keeps one of them
/// for all.)
struct LinearArgs {
  LinearOperands operands = LinearOperands::kPlain;
  PlainOperands plain;                     ///< kPlain
  WeightPanels panels;                     ///< kPackedFloats, kPackedCodes, kSuper
  GroupedRows grouped;                     ///< kPackedFloats
  QuantizedRows quantized;                 ///< kPackedCodes
  SuperRows super_rows;                    ///< kSuper
  Decoding decoding = Decoding::kDefault;  ///< kPackedCodes

  std::int64_t k = 0;
  std::int64_t rows = 0;                 ///< m
  std::int64_t n = 0;                    ///< outputs of the whole matrix: nothing beyond is prefetched
  const std::uint8_t* follow = nullptr;  ///< panels to prefetch after the last output's, or null
  const float* bias = nullptr;           ///< or null
  float* out = nullptr;
  std::int64_t out_stride = 0;
  std::int64_t out_origin = 0;  ///< the n of column 0 of `out`
};

/// Whether rows are stored as tiles read them.
inline bool on_tiles(const LinearArgs& args) {
  return args.operands == LinearOperands::kSuper ||
         (args.operands == LinearOperands::kPackedFloats && in_tiles(args.grouped.form));
}

/// The same product for the rows from `row` on (the caller sets `rows`).
LinearArgs from_row(const LinearArgs& args, std::int64_t row);

/// Scratch memory that linear() needs, 64-byte aligned; independent of the shape because K is processed in blocks.
/// Matrix tiles keep the totals of 256 rows by 256 outputs there; all others use less than 192 KiB.
inline constexpr std::size_t kLinearScratchBytes = std::size_t{320} << 10;

struct RopeArgs {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t dims = 0;
  bool interleaved = false;
  const float* cos = nullptr;  ///< [dims / 2], of the row's position
  const float* sin = nullptr;
};

/// Hadamard, as its apply() for float32 needs it.
struct HadamardArgs {
  std::int64_t order = 0;
  std::int64_t core = 1;         ///< at most Hadamard::kMostCore
  const float* signs = nullptr;  ///< [core][core]
  float scale = 1.f;
};

/// Half-open range of cached positions.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int32_t source = 0;  ///< whose rows they are: 0: AttentionArgs::k and v; i: shared[i - 1]
};

/// Position 0 of a kv head in another cache.
struct SharedRows {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
};

/// How attention is computed. All but kF32 have the same bits, those of the arithmetic `bf16`
/// (docs/design/arithmetic.md).
enum class AttentionForm : std::uint8_t {
  kF32,
  kChains,  ///< multiply-adds
  kDots,    ///< dot products of BF16 pairs: for sets that say bf16_dots()
  kTiles,   ///< for sets that say bf16_tiles
};

/// Queries of one sequence and one kv head. Query i is head i % group of row i / group.
struct AttentionArgs {
  AttentionForm form = AttentionForm::kF32;
  TensorType type = TensorType::kF32;  ///< of K and V: F32, F16, BF16, or Q8_0 if head_dim is a multiple of 32
  const std::byte* k = nullptr;        ///< position 0 of the kv head
  const std::byte* v = nullptr;
  const SharedRows* shared = nullptr;  ///< caches that this one is a branch of; null: no range reads them
  std::int64_t position_bytes = 0;     ///< from one position to the next
  std::int64_t head_dim = 0;
  std::int64_t group = 1;  ///< query heads per kv head
  float scale = 1.f;
  bool plain_keys = false;           ///< Q4_0: keys were stored by encode(), not encode_key()
  const KeyRange* ranges = nullptr;  ///< visible positions: sorted, disjoint
  std::int64_t range_count = 0;
  const std::int32_t* limits = nullptr;  ///< per row: of these, it sees the positions below its limit
  const float* q = nullptr;              ///< row 0, first head of the group; heads are head_dim apart
  float* out = nullptr;                  ///< laid out as q; zeros where no key is visible
  std::int64_t row_stride = 0;           ///< floats from row to row, of q and of out
  std::int64_t begin = 0;                ///< queries [begin, end), at most kAttentionQueries
  std::int64_t end = 0;
  void* scratch = nullptr;  ///< attention_scratch_bytes(head_dim), 64-byte aligned
};

/// Positions of a tile of the online softmax, part of its definition. 64 positions of 128 dimensions are 32 KiB of K
/// and as much of V once widened: a quarter of the smallest L2 caches.
inline constexpr std::int64_t kKeyTile = 64;
/// Queries of a call: enough to share the widening of a tile (4 % of the work at 128).
inline constexpr std::int64_t kAttentionQueries = 128;
inline constexpr std::int64_t kAttentionStride = 128;
constexpr std::int64_t attention_stride(std::int64_t head_dim) {
  return head_dim <= kAttentionStride ? kAttentionStride : (head_dim + kBf16Step - 1) / kBf16Step * kBf16Step;
}
constexpr std::size_t attention_scratch_bytes(std::int64_t head_dim) {
  const std::int64_t stride = attention_stride(head_dim);
  // K and V; scores (of a group of at most 64 queries), positions and sources; queries, outputs and three numbers each.
  return static_cast<std::size_t>(2 * kKeyTile * stride + kKeyTile * 66 + kAttentionQueries * (2 * stride + 3)) *
         sizeof(float);
}

/// Gumbel draws of the tokens first_token, first_token + 1, ... of one row, keyed as in base/rng.h.
struct DrawArgs {
  const float* logits = nullptr;
  std::int64_t count = 0;
  double inverse_temperature = 1;
  std::uint64_t seed = 0;
  std::uint32_t first_token = 0;
  std::uint32_t position = 0;
  std::uint32_t step = 0;
  std::uint32_t stream = 0;  ///< request and purpose
};

/// Below it e^d is subnormal, and negligible compared with the 1 of the largest logit.
inline constexpr double kLeastExponent = -708;

struct KernelSet {
  const char* name;
  /// Whether products of the arithmetic `super` with quantized weights are faster here than exact ones.
  bool prefers_super = false;
  /// Whether this processor runs products of float weights with rows in tiles.
  bool bf16_tiles = false;
  /// Least rows of a product for which Decoding::kPerBlock has kernels of its own; 0: never.
  std::int64_t per_block_rows = 0;

  /// One row of k values (a multiple of 32): q = x / scale rounded to nearest even. scale = max|x| / 127, or, unless
  /// `exact`, that rounded up to 1, 1.25, 1.5 or 1.75 times a power of two, which pair tiles multiply by an addition:
  /// 0.8 dB more noise. This is negligible compared with that of weights of 5 bits or less, but costs the embedded
  /// model 0.8 points of accuracy with 8-bit weights. A block that contains an infinity or a NaN gets a scale that is
  /// not finite, so that the result shows it.
  void (*quantize_row)(const float* x, std::int64_t k, bool exact, std::int8_t* values, float* scales,
                       std::int32_t* sums);
  /// Super-block `s` of one group of `count` <= 16 rows of k values (a multiple of 16), k apart; missing rows of the
  /// 16, and the padding of the length, are zero. q = x (16256 / max|x|), rounded to nearest even, and X = max|x| /
  /// 16256; q and X are zero where max|x| < 2^-100. X is not finite if a value is not, so that the result shows it.
  void (*quantize_super)(const float* x, std::int64_t k, std::int64_t count, std::int64_t group, std::int64_t s,
                         const SuperRows& to);
  /// One group of `count` <= rows_of_group() rows of k values, k apart, with zeros for missing rows. Writes at most
  /// group_stride() floats. Returns whether rows that were rounded are regular (RowForm).
  bool (*interleave)(RowForm form, const float* x, std::int64_t k, std::int64_t count, float* out);
  /// Whether this processor runs products with rows in pairs.
  bool (*bf16_dots)();
  /// Whether the int8 family supports the format; if not, only the float family (through the codec) does.
  bool (*runs_int8)(TensorType type);
  /// Outputs [n_begin, n_end); n_begin is a multiple of kPanel. A result depends only on its row of x and of w: not on
  /// the number of rows, nor on how outputs are split into calls.
  void (*linear)(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch);

  void (*rms_norm)(const float* x, const float* gain, float eps, std::int64_t n, float* out);
  void (*rope)(const RopeArgs& args, const float* x, float* out);
  /// Hadamard::apply() of each `order` of n values, a multiple; `out` may be `x`.
  void (*hadamard)(const HadamardArgs& args, const float* x, std::int64_t n, float* out);
  void (*swiglu)(const float* gate, const float* up, std::int64_t n, float* out);
  /// GELU (tanh form) of gate, times up.
  void (*geglu)(const float* gate, const float* up, std::int64_t n, float* out);
  /// cap * tanh(z / cap), to within 2e-7 cap.
  void (*softcap)(const float* z, float cap, std::int64_t n, float* out);
  void (*add)(const float* a, const float* b, std::int64_t n, float* out);
  /// out = fma(x, scale, out)
  void (*add_scaled)(const float* x, float scale, std::int64_t n, float* out);
  void (*attention)(const AttentionArgs& args);
  /// Row of V in the cache: F32, F16, BF16 (rounded to nearest even), Q8_0 or Q4_0. Of the last two n is a multiple of
  /// 32, and x / scale is rounded to nearest even; scale, as float16: max|x| / 127, or the x furthest from 0 by -8.
  void (*encode)(TensorType type, const float* x, std::int64_t n, std::byte* out);
  /// Row of K in the cache. As encode(), but Q4_0 stores H x / 8 of every block, where H is the Walsh-Hadamard matrix
  /// of 32 x 32 with elements of +1 and -1 (in natural order: element (i, j) is the parity of i & j).
  void (*encode_key)(TensorType type, const float* x, std::int64_t n, std::byte* out);
  void (*to_half)(const float* x, std::int64_t n, std::uint16_t* out);
  /// Index of the first largest value, ignoring NaN; -1 if there is none.
  std::int64_t (*arg_max)(const float* z, std::int64_t n);
  /// First index in [begin, n) with z >= bound, or n.
  std::int64_t (*find_at_least)(const float* z, std::int64_t begin, std::int64_t n, float bound);
  /// sums[0] = sum of e^d and sums[1] = sum of d e^d, d = (z - top) beta in float64, over d > kLeastExponent (NaN
  /// excluded). Eight lanes, then a tree. `top` is finite and at least every z.
  void (*exp_sums)(const float* z, std::int64_t n, float top, double beta, double* sums);
  /// First index in [begin, count) of a token whose key z/T + g may reach `bound`, or count. Never skips one that does
  /// (up to rounding: use a margin of one part in 10^12), but may report a few that do not.
  std::int64_t (*next_draw)(const DrawArgs& args, std::int64_t begin, double bound);
  /// e^x with a relative error below 2e-7; exact at -inf, overflow and NaN. Exposed for its test.
  void (*exp)(const float* x, std::int64_t n, float* out);
};
// All row functions allow out == x (the executor runs them in place).

/// The fastest form of the arithmetic `bf16`.
inline AttentionForm bf16_attention(const KernelSet& set) {
  if (set.bf16_tiles) return AttentionForm::kTiles;
  return set.bf16_dots() ? AttentionForm::kDots : AttentionForm::kChains;
}

/// A set of this build and whether this processor (and its operating system) supports it.
struct KernelSetEntry {
  const KernelSet* set;
  bool available;
};

inline constexpr int kMaxKernelSets = 5;
/// Every set of this build, slowest first; returns their number. The last available one is the default.
int list_kernel_sets(KernelSetEntry (&entries)[kMaxKernelSets]);
const KernelSet* default_kernel_set();
/// nullptr if this build has no such set or this processor cannot run it.
const KernelSet* find_kernel_set(const char* name);

}  // namespace dllm::cpu
