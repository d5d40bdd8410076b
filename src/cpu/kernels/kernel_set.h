#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/packed.h"
#include "numerics/tensor_type.h"

// The kernels of one instruction set, as a table of functions over plain pointers. Only headers of the language are
// used here, so that src/cpu/kernels cross-compiles with nothing but a C++ runtime.
//
// Every set computes every float with the same operations in the same order (16 lanes, fused multiply-adds where the
// source says fma, one fixed tree for sums over lanes), so all sets agree BIT FOR BIT with `scalar`, which is the
// oracle. That is why VDPBF16PS and the like are absent: they round differently.

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
  // What pair tiles (pairs-inl.h) read instead of the scales; derived from them, see derive_row().
  std::int32_t* exponents = nullptr;  ///< per 32: the scale's exponent, in place to be added to a float's
  std::int32_t* multiples = nullptr;  ///< per 32: its mantissa, as the byte offset in a table of [4][16] floats
  float* offsets = nullptr;           ///< per 32: -scale * sum
  /// Per group of the format at hand: -zero * sum. Set for each product (fill_corrections()).
  std::int32_t* corrections = nullptr;
  bool regular = false;  ///< every scale is zero or within [2^-60, 2^60]: pair tiles may run
};

/// Fills exponents, multiples and offsets of `row` from its scales and sums; false if a scale forbids `regular`.
bool derive_row(const QuantizedRows& rows, std::int64_t row, std::int64_t k);
/// corrections[rows][k / group] from the sums.
void fill_corrections(const QuantizedRows& q, std::int64_t rows, std::int64_t k, const PackedFormat& format);

/// out[m][n - out_origin] = sum_k x[m][k] w[n][k] + bias[n]
struct LinearArgs {
  // The float family, which reads weights as they stand in the file:
  TensorType type = TensorType::kF32;
  const std::byte* weight = nullptr;  ///< rows of k elements, `row_bytes` apart
  std::int64_t row_bytes = 0;
  /// Formats other than F32, F16 and BF16: the codec's decoder and the size of its blocks.
  void (*dequantize)(const std::byte* src, float* dst, std::int64_t count) = nullptr;
  std::int64_t block_elems = 1;
  std::int64_t block_bytes = 4;
  const float* x = nullptr;  ///< [rows][k]: the float family runs if it is set
  // The int8 family, over packed weights:
  const PackedFormat* format = nullptr;
  const PackedLayout* layout = nullptr;
  const std::uint8_t* packed = nullptr;  ///< panels
  bool regular = false;                  ///< pack_panel() was true for every panel
  QuantizedRows quantized;

  std::int64_t k = 0;
  std::int64_t rows = 0;        ///< m
  const float* bias = nullptr;  ///< or null
  float* out = nullptr;
  std::int64_t out_stride = 0;
  std::int64_t out_origin = 0;  ///< the n that column 0 of `out` stands for
};

/// The same product for the rows from `row` on (`rows` is left to the caller).
LinearArgs from_row(const LinearArgs& args, std::int64_t row);

/// Scratch that linear() needs, 64-byte aligned; independent of the shape because K is walked in blocks.
inline constexpr std::size_t kLinearScratchBytes = std::size_t{64} << 10;

struct RopeArgs {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t dims = 0;
  bool interleaved = false;
  const float* cos = nullptr;  ///< [dims / 2], of the row's position
  const float* sin = nullptr;
};

/// Half-open range of cached positions.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// One query head against the visible keys, in the order of the ranges.
struct AttentionArgs {
  const float* q = nullptr;  ///< [head_dim]
  const void* k = nullptr;   ///< position 0 of the kv head: float or IEEE half
  const void* v = nullptr;
  bool half = false;
  std::int64_t stride = 0;  ///< elements from one position to the next
  std::int64_t head_dim = 0;
  float scale = 1.f;
  const KeyRange* ranges = nullptr;
  std::int64_t range_count = 0;
  float* scores = nullptr;  ///< scratch: number of visible keys, rounded up to a multiple of 16
  float* out = nullptr;     ///< [head_dim]; zeros if no key is visible
};

struct KernelSet {
  const char* name;

  /// One row of k values (a multiple of 32). scale = max|x| / 127 rounded up to 1, 1.25, 1.5 or 1.75 times a power of
  /// two; q = x / scale rounded to nearest even. A block that holds an infinity or a NaN gets a scale that is not
  /// finite, so that it shows in the result.
  void (*quantize_row)(const float* x, std::int64_t k, std::int8_t* values, float* scales, std::int32_t* sums);
  /// Whether the int8 family knows the format; if not, only the float family (through the codec) runs it.
  bool (*runs_int8)(TensorType type);
  /// Outputs [n_begin, n_end); n_begin is a multiple of kPanel. A result depends on its row of x and of w only: not on
  /// the number of rows, nor on how outputs are split into calls.
  void (*linear)(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch);

  void (*rms_norm)(const float* x, const float* gain, float eps, std::int64_t n, float* out);
  void (*rope)(const RopeArgs& args, const float* x, float* out);
  void (*swiglu)(const float* gate, const float* up, std::int64_t n, float* out);
  void (*add)(const float* a, const float* b, std::int64_t n, float* out);
  void (*attention)(const AttentionArgs& args);
  void (*to_half)(const float* x, std::int64_t n, std::uint16_t* out);
  /// e^x with a relative error below 2e-7; exact at -inf, overflow and NaN. Exposed for its test.
  void (*exp)(const float* x, std::int64_t n, float* out);
};
// All row functions allow out == x (the executor runs them in place).

/// A set of this build and whether this processor (and its operating system) runs it.
struct KernelSetEntry {
  const KernelSet* set;
  bool available;
};

inline constexpr int kMaxKernelSets = 4;
/// Every set of this build, slowest first; returns their number. The last available one is the default.
int list_kernel_sets(KernelSetEntry (&entries)[kMaxKernelSets]);
const KernelSet* default_kernel_set();
/// nullptr if this build has no such set or this processor cannot run it.
const KernelSet* find_kernel_set(const char* name);

}  // namespace dllm::cpu
