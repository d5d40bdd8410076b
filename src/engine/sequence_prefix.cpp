// Which rows of a sequence other requests may start from.
#include "decode/registry.h"
#include "engine/sequence.h"

namespace dllm {

std::optional<Position> Sequence::prefix_block(const ModelDesc& desc) {
  if (desc.canvas.length > 0 || !desc.modes.empty()) return 1;  // what they have finished is read causally
  if (desc.causal_block > 0) return desc.causal_block;
  return std::nullopt;
}

/// Guidance and a second path forward the same rows over a second cache. Of the policies for masks, only the exact one
/// leaves out rows that it finds.
bool Sequence::shares_prefix() const {
  if (unconditional_ || side_) return false;
  return !std::holds_alternative<std::unique_ptr<Denoiser>>(loop_) ||
         traits_of(caches(), result_.options.cache).exact_rows;
}

void Sequence::read_prefix(PrefixStore& store) {
  if (shares_prefix()) cached_ = store.read(result_.prompt_ids, *cache_);
}

/// End of what the loop has finished.
Position Sequence::finished_rows() const {
  return in_loop([](const auto& loop) {
    if constexpr (requires { loop.read(); })
      return loop.read();
    else
      return loop.canvas().size();
  });
}

Position Sequence::final_rows() const {
  const auto block = prefix_block(host_.backend.desc());
  if (!shares_prefix() || !block || cache_->bytes() == 0) return 0;
  return PrefixStore::final_rows(*cache_, *block, finished_rows(), canvas().mask());
}

void Sequence::keep_prefix(PrefixStore& store, Backend& backend) const {
  if (shares_prefix()) store.keep(backend, *cache_, finished_rows(), canvas().mask());
}

}  // namespace dllm
