// The LM head: a matrix product whose output never exists as a whole. Slabs of VLEN logits alternate between two
// buffers; each is stored while the next is computed.

#include <array>

#include "base/try.h"
#include "npu/compiler/context.h"

namespace dllm::npu {
namespace {

constexpr std::uint32_t kLogitAddress = 7;

}  // namespace

Expected<void> lower(StepContext& c, const op::ScoreHead& o) {
  const ValuePlace x = c.place(o.x);
  const std::int64_t vocab = c.graph.weights[static_cast<std::size_t>(o.weight)].shape[1];
  const std::int64_t slabs = ceil_div(vocab, c.vlen());
  DLLM_TRY(const Buffer buffers, c.acquire(2 * x.stride, "logits"));
  DLLM_TRY(c.result.logits, c.hbm_area(static_cast<std::uint64_t>(slabs * x.stride * c.vlen() * 2), "logits"));
  c.result.logit_rows = x.stride;
  Emitter& e = c.e;
  const bool biased = o.bias != kNoId && c.layout.find(o.bias, WeightUse::kRow) != nullptr;
  Buffer bias;
  if (biased) {
    DLLM_TRY(bias, c.resident(o.bias, WeightUse::kRow));
  }
  // Element offset in HBM and the bias row of the slab, between slabs in INT_MEM: inside, all registers are taken.
  const std::uint32_t offset_word = scratch_word(c.machine, 4), bias_word = scratch_word(c.machine, 5);
  e.store_int(Gp(), Gp(), offset_word);
  if (biased) e.store_int(e.reg(c.address(bias.row)), Gp(), bias_word);
  const std::uint32_t first = c.address(buffers.row), second = c.address(buffers.row + x.stride);
  const MatrixSink sink{first, {}, [&](const Gp& slab) {
                          if (biased) {
                            const Gp row = e.reg(), b = e.reg();
                            e.load_int(b, Gp(), bias_word);
                            e.copy(row, slab);
                            e.loop(x.stride, [&] {
                              e.vector_vv(Op::V_ADD_VV, row, row, b);
                              e.add(row, row, c.vlen());
                            });
                            e.add(b, b, c.vlen());
                            e.store_int(b, Gp(), bias_word);
                          }
                          const Gp offset = e.reg();
                          e.load_int(offset, Gp(), offset_word);
                          e.set_address(kLogitAddress, c.result.logits);
                          e.set_csr(Csr::kFormatActivation, mx_format_number({}));
                          e.set_csr(Csr::kStoreVRows, static_cast<std::uint32_t>(x.stride));
                          e.transfer(Op::H_STORE_V, slab, offset, kLogitAddress, false, 0);
                          e.add(offset, offset, x.stride * c.vlen());
                          e.store_int(offset, Gp(), offset_word);
                          const Gp both = e.reg(first + second);
                          e.subtract(slab, both, slab);
                        }};
  lower_matrix(c, c.address(x.row), x.stride, x.stride / c.machine.blen, sink);
  c.release(buffers);
  return {};
}

}  // namespace dllm::npu
