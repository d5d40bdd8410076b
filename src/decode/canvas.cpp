#include "decode/canvas.h"

#include <algorithm>
#include <cassert>

namespace dllm {

Canvas::Canvas(std::vector<TokenId> prompt, Position length, TokenId mask)
    : tokens_(std::move(prompt)),
      prompt_end_(static_cast<Position>(tokens_.size())),
      masked_total_(length),
      mask_(mask) {
  const std::size_t total = tokens_.size() + static_cast<std::size_t>(length);
  masked_.assign(tokens_.size(), 0);
  tokens_.resize(total, mask);
  masked_.resize(total, 1);
}

Position Canvas::masked_count(PositionRange range) const {
  return static_cast<Position>(std::count(masked_.begin() + range.begin, masked_.begin() + range.end, 1));
}

Position Canvas::first_masked(Position from) const {
  return static_cast<Position>(std::find(masked_.begin() + from, masked_.end(), 1) - masked_.begin());
}

bool Canvas::apply(const Edit& edit) {
  const auto i = static_cast<std::size_t>(edit.position);
  assert(edit.position >= prompt_end_ && edit.position < size());
  if (edit.kind == EditKind::kRemask) {
    assert(!masked_[i]);
    tokens_[i] = mask_;
    masked_[i] = 1;
    ++masked_total_;
    return true;
  }
  assert((edit.kind == EditKind::kCommit) == (masked_[i] != 0));
  if (edit.token == mask_ || edit.token < 0) return false;
  const bool changed = masked_[i] != 0 || tokens_[i] != edit.token;
  if (masked_[i]) --masked_total_;
  tokens_[i] = edit.token;
  masked_[i] = 0;
  return changed;
}

}  // namespace dllm
