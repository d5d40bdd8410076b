#include "npu_compiler/compiler/kv_stream.h"

#include "npu_compiler/compiler/attention_plan.h"

namespace dllm::npu {

KvStream::KvStream(StepContext& c, const SequenceSpec& sequence, const KvPlace& place, bool value)
    : e_(c.e),
      vlen_(c.vlen()),
      capacity_(round_up(sequence.capacity, c.layout.key_tile)),
      address_(value ? kVAddress : kKAddress),
      strided_(c.machine.vlen != c.machine.mlen) {
  e_.set_address(address_, sequence.cache + (value ? place.v_offset : place.k_offset));
  e_.set_scale(place.scale_offset);
  if (strided_) e_.set_stride(static_cast<std::uint32_t>(vlen_));
}

void KvStream::read(std::uint32_t target, std::int64_t lane, std::int64_t position, std::int64_t count) {
  const std::int64_t offset = (lane / vlen_ * capacity_ + position) * vlen_ + lane % vlen_;
  e_.set_csr(Csr::kPrefetchMRows, static_cast<std::uint32_t>(count));
  const Gp to = e_.reg(target), from = e_.reg(static_cast<std::uint32_t>(offset));
  e_.transfer(Op::H_PREFETCH_M, to, from, address_, strided_, 1);
}

void for_tile_runs(std::span<const std::int64_t> tiles, const std::function<void(std::size_t, std::size_t)>& body) {
  for (std::size_t first = 0; first < tiles.size();) {
    std::size_t end = first + 1;
    while (end < tiles.size() && tiles[end] == tiles[end - 1] + 1) ++end;
    body(first, end - first);
    first = end;
  }
}

}  // namespace dllm::npu
