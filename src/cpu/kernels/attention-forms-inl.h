#pragma once

#include "cpu/kernels/attention-bf16-inl.h"
#include "cpu/kernels/attention-few-inl.h"
#include "cpu/kernels/attention-inl.h"
#include "cpu/kernels/kernel_set.h"
#ifdef DLLM_BF16_DOTS
#include "cpu/kernels/attention-dots-inl.h"
#include "cpu/kernels/attention-few-dots-inl.h"
#endif

namespace dllm::cpu::DLLM_ISA {
namespace {

void attention(const AttentionArgs& args) {
  // One constant stride covers every head_dim of the supported models (64, 96, 128).
  const bool constant = args.head_dim <= kAttentionStride;
#ifdef DLLM_BF16_DOTS
  if (args.form == AttentionForm::kDots && args.end - args.begin <= 8)
    return constant ? attend_bf16<FewDotForm, kAttentionStride>(args) : attend_bf16<FewDotForm, 0>(args);
  if (args.form == AttentionForm::kDots)
    return constant ? attend_bf16<DotForm, kAttentionStride>(args) : attend_bf16<DotForm, 0>(args);
#endif
  if (args.form != AttentionForm::kF32) return attend_bf16<ChainForm, 0>(args);
  constant ? attend_any<kAttentionStride>(args) : attend_any<0>(args);
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
