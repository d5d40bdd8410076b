#pragma once

#include "cpu/kernels/attention-forms-inl.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/linear-inl.h"
#include "cpu/kernels/reduce-inl.h"
#include "cpu/kernels/row_operators-inl.h"

// The body of a kernel set. A source is one set: it defines DLLM_ISA, then includes its simd_<isa>.h, the policy that
// all `-inl.h` files build on, and then this file, and is compiled with the flags of its instruction set. So a guard
// per source is one per instruction set; sources are never joined.
//
// Everything is in an anonymous namespace and no template of the standard library is used: otherwise an inline function
// compiled here with, say, AVX-512 instructions could be the copy that the linker keeps for the whole program.

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
