#pragma once

#include "npu_compiler/compiler/context.h"

namespace dllm::npu {

/// Transfers of a layer's K or V from a sequence's cache into matrix SRAM. The constructor sets the address register,
/// the scale register and the stride, which must not change before the last read.
class KvStream {
 public:
  KvStream(StepContext& c, const SequenceSpec& sequence, const KvPlace& place, bool value);

  /// MLEN lanes from `lane` on, of `count` positions from `position` on.
  void read(std::uint32_t target, std::int64_t lane, std::int64_t position, std::int64_t count);

 private:
  Emitter& e_;
  std::int64_t vlen_, capacity_;
  std::uint32_t address_;
  bool strided_;
};

/// One transfer per run of adjacent tiles: body(index of the first, how many).
void for_tile_runs(std::span<const std::int64_t> tiles, const std::function<void(std::size_t, std::size_t)>& body);

}  // namespace dllm::npu
