#include "npu_core/isa/csr.h"

namespace dllm::npu {
namespace {

constexpr CsrInfo kTable[kCsrCount] = {
    {Csr::kBmmScale, "bmm_scale", "FP32 bits", "1.0", "multiplier of M_BMM_WO and M_BMV_WO, 1/sqrt(d) in attention"},
    {Csr::kPrefetchMRows, "prefetch_m_rows", "rows", "the profile's, MLEN by default", "rows that H_PREFETCH_M moves"},
    {Csr::kPrefetchVRows, "prefetch_v_rows", "rows", "the profile's, 4 by default", "rows that H_PREFETCH_V moves"},
    {Csr::kStoreVRows, "store_v_rows", "rows", "the profile's, 4 by default", "rows that H_STORE_V moves"},
    {Csr::kBmmRows, "bmm_rows", "rows", "MLEN", "vector rows of M_BMM and M_BTMM; multiple of BLEN, at most MLEN"},
    {Csr::kBmmCols, "bmm_cols", "lanes", "MLEN", "output columns per head; multiple of BLEN, at most MLEN"},
    {Csr::kBmmGroup, "bmm_group", "heads", "MLEN / HLEN",
     "consecutive heads that share one matrix slice; divides MLEN / HLEN"},
    {Csr::kBmmHeadStride, "bmm_head_stride", "elements", "0", "distance of heads in VRAM at write-out; 0: rows x VLEN"},
    {Csr::kSegmentLength, "segment_length", "lanes", "HLEN",
     "section of *_SEG, of V_SHFT_V mode 2 and of the Hadamard transform; a power of two, at most VLEN"},
    {Csr::kRouterExperts, "router_experts", "lanes", "32", "experts of V_TOPK policy 2; at most VLEN"},
    {Csr::kRouterTop, "router_top", "experts", "4", "selected experts of V_TOPK policy 2"},
    {Csr::kFormatWeight, "format_weight", "format", "the profile's",
     "H_PREFETCH_M with prec 0; only this register may be q4_0 or q8_0"},
    {Csr::kFormatMatrixKv, "format_matrix_kv", "format", "the profile's", "H_PREFETCH_M with prec 1"},
    {Csr::kFormatActivation, "format_activation", "format", "the profile's", "H_PREFETCH_V and H_STORE_V with prec 0"},
    {Csr::kFormatVectorKv, "format_vector_kv", "format", "the profile's", "H_PREFETCH_V and H_STORE_V with prec 1"},
    {Csr::kFormatMatrixInput, "format_matrix_input", "format", "the profile's",
     "to which vector operands are converted on their way into the matrix unit"},
    {Csr::kBmmLayout, "bmm_layout", "0 or 1", "0",
     "where M_BMM and M_BMV find the matrices of further heads: 0 below each other, in the next HLEN rows; 1 side by "
     "side, in the next bmm_cols lanes of the same HLEN rows"},
    {Csr::kMmRows, "mm_rows", "rows", "BLEN",
     "vector rows of M_MM and M_TMM, which M_MM_WO writes; at most BLEN: a block that is not full takes fewer accesses "
     "of VRAM"},
    {Csr::kDrawSeedLow, "draw_seed_low", "32 bits", "0", "seed of the draws, V_RED_DRAW"},
    {Csr::kDrawSeedHigh, "draw_seed_high", "32 bits", "0", "its upper half"},
    {Csr::kDrawStream, "draw_stream", "32 bits", "0",
     "the fourth word of the counter: 4 x request + purpose, 0 for tokens"},
    {Csr::kDrawStep, "draw_step", "passes", "0", "forward pass of the sequence, the third word of the counter"},
    {Csr::kDrawTemperatureLow, "draw_temperature_low", "FP64 bits", "0",
     "temperature T of the draws; with its upper half 1.0"},
    {Csr::kDrawTemperatureHigh, "draw_temperature_high", "FP64 bits", "0x3ff00000",
     "its upper half; T must be finite and above 0"},
    {Csr::kDrawPrecision, "draw_precision", "0, 1 or 2", "0", "keys of V_RED_DRAW in FP64, FP32 or BF16"},
    {Csr::kDrawExcept, "draw_except", "token", "0xffffffff", "never drawn: the mask token"},
    {Csr::kDrawTokens, "draw_tokens", "tokens", "0xffffffff", "tokens from this one on are padding and never drawn"},
};

}  // namespace

std::span<const CsrInfo> csr_table() { return kTable; }

const CsrInfo* find_csr(std::string_view name) {
  for (const CsrInfo& row : kTable)
    if (row.name == name) return &row;
  return nullptr;
}

const CsrInfo* find_csr(std::uint32_t number) {
  return number < static_cast<std::uint32_t>(kCsrCount) ? &kTable[number] : nullptr;
}

}  // namespace dllm::npu
