// No include guard: the body of a kernel set. A translation unit defines DLLM_ISA, includes its simd_<isa>.h and then
// this file, and is compiled with the flags of its instruction set.
//
// Everything is in an anonymous namespace and no template of the standard library is used: otherwise an inline function
// compiled here with, say, AVX-512 instructions could be the copy that the linker keeps for the whole program.

#include "cpu/kernels/kernel_set.h"

#include "cpu/kernels/math-inl.h"
// first: the others use exp
#include "cpu/kernels/bf16-inl.h"
#include "cpu/kernels/packed-inl.h"
#include "cpu/kernels/row_operators-inl.h"
// linear and attention are based on them
#include "cpu/kernels/cached_rows-inl.h"
// before attention-inl.h
#include "cpu/kernels/attention-inl.h"
// after attention-inl.h
#include "cpu/kernels/attention-bf16-inl.h"
#include "cpu/kernels/attention-few-inl.h"
#ifdef DLLM_BF16_DOTS
#include "cpu/kernels/attention-dots-inl.h"
// after attention-dots-inl.h
#include "cpu/kernels/attention-few-dots-inl.h"
#endif
// after all kinds of attention
#include "cpu/kernels/attention-forms-inl.h"
#ifdef DLLM_PAIR_TILES
#include "cpu/kernels/pairs-inl.h"
// after the tiles
#include "cpu/kernels/pair_blocks-inl.h"
#endif
#ifdef DLLM_PANEL_TILES
#include "cpu/kernels/panels-inl.h"
#endif
#include "cpu/kernels/floats-inl.h"
#include "cpu/kernels/half_parts-inl.h"
// after the two
#include "cpu/kernels/bf16-steps-inl.h"
#include "cpu/kernels/super-inl.h"
// after super-inl.h
#ifdef DLLM_WORD_PRODUCTS
#include "cpu/kernels/super-words-inl.h"
#else
#include "cpu/kernels/super-bytes-inl.h"
#endif
// linear chooses among them
#include "cpu/kernels/linear-inl.h"
#include "cpu/kernels/reduce-inl.h"

#define DLLM_STRINGIFY_IMPL(name) #name
#define DLLM_STRINGIFY(name) DLLM_STRINGIFY_IMPL(name)

namespace dllm::cpu::DLLM_ISA {

extern const KernelSet kKernels;
constinit const KernelSet kKernels = {
    .name = DLLM_STRINGIFY(DLLM_ISA),
#ifdef DLLM_PAIR_TILES
    .per_block_rows = kPerBlockRows,
#endif
    .quantize_row = quantize_row,
    .quantize_super = quantize_super,
    .interleave = interleave,
    .bf16_dots = bf16_dots,
    .runs_int8 = runs_int8,
    .linear = linear,
    .rms_norm = rms_norm,
    .rope = rope,
    .hadamard = hadamard,
    .swiglu = swiglu,
    .geglu = geglu,
    .softcap = softcap,
    .add = add_rows,
    .add_scaled = add_scaled,
    .attention = attention,
    .encode = encode,
    .encode_key = encode_key,
    .to_half = to_half,
    .arg_max = arg_max,
    .find_at_least = find_at_least,
    .exp_sums = exp_sums,
    .next_draw = next_draw,
    .exp = exp_row,
};

}  // namespace dllm::cpu::DLLM_ISA
