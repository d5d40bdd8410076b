// AVX-512's kernels, except that matrix tiles compute products of the arithmetic `super`, those of `exact` with enough
// rows, and attention in `bf16`.
#define DLLM_ISA amx

#include "base/instruction_set.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/simd_avx512.h"
// the policy and the tiles must precede the kernels based on them
#include "cpu/kernels/attention-tiles-inl.h"
#include "cpu/kernels/exact-tiles-inl.h"
#include "cpu/kernels/super-tiles-inl.h"

namespace dllm::cpu {
namespace avx512 {
extern const KernelSet kKernels;
}
namespace amx {
namespace {

void linear(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  if (args.operands == LinearOperands::kSuper) return super_tiles_linear(args, n_begin, n_end, scratch);
  if (on_tiles(args)) return float_tiles_linear(args, n_begin, n_end, scratch);
  if (args.operands == LinearOperands::kPackedCodes && args.decoding == Decoding::kTiles && args.rows >= kExactTileRows)
    return exact_tiles_linear(args, n_begin, n_end, scratch);
  avx512::kKernels.linear(args, n_begin, n_end, scratch);
}

void attention(const AttentionArgs& args) {
  if (args.form != AttentionForm::kTiles) return avx512::kKernels.attention(args);
  // Few queries fill half a tile at most, so arranging K and V for tiles takes longer than plain dot products. The bits
  // are the same.
  constexpr std::int64_t kFewQueries = 8;
  if (args.end - args.begin > kFewQueries || !avx512::kKernels.bf16_dots()) return tile_attention(args);
  AttentionArgs dots = args;
  dots.form = AttentionForm::kDots;
  avx512::kKernels.attention(dots);
}

}  // namespace

const KernelSet& kernels();
const KernelSet& kernels() {
  static const KernelSet set = [] {
    KernelSet own = avx512::kKernels;
    own.name = "amx";
    own.prefers_super = true;
    own.bf16_tiles = runs(InstructionSet::kAmxBf16);
    own.exact_tile_rows = kExactTileRows;
    own.linear = linear;
    own.attention = attention;
    return own;
  }();
  return set;
}

}  // namespace amx
}  // namespace dllm::cpu
