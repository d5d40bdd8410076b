#include "decode/canvas.h"

#include <algorithm>
#include <cassert>

#include "base/to_size.h"

namespace dllm {

Canvas::Canvas(std::vector<TokenId> prompt, Position length, TokenId mask)
    : tokens_(std::move(prompt)),
      prompt_end_(static_cast<Position>(tokens_.size())),
      answer_begin_(prompt_end_),
      masked_total_(length),
      mask_(mask) {
  const std::size_t total = tokens_.size() + to_size(length);
  masked_.assign(tokens_.size(), 0);
  tokens_.resize(total, mask);
  masked_.resize(total, 1);
}

void Canvas::extend(Position length) {
  assert(masked_total_ == 0);
  prompt_end_ = size();
  tokens_.resize(tokens_.size() + to_size(length), mask_);
  masked_.resize(tokens_.size(), 1);
  masked_total_ = length;
}

Position Canvas::masked_count(PositionRange range) const {
  return static_cast<Position>(std::count(masked_.begin() + range.begin, masked_.begin() + range.end, 1));
}

Position Canvas::first_masked(Position from) const {
  return static_cast<Position>(std::find(masked_.begin() + from, masked_.end(), 1) - masked_.begin());
}

bool Canvas::apply(const Edit& edit) {
  const auto i = to_size(edit.position);
  assert(edit.position >= prompt_end_ && edit.position < size());
  if (shifts(edit.kind)) return shift(edit);
  if (edit.kind == EditKind::kRemask) {
    assert(!masked_[i]);
    tokens_[i] = mask_;
    masked_[i] = 1;
    ++masked_total_;
    return true;
  }
  if (edit.kind == EditKind::kLeave) {
    assert(masked_[i] != 0);
    masked_[i] = 0;
    --masked_total_;
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

bool Canvas::shift(const Edit& edit) {
  assert(edit.position < edit.end && edit.end <= size());
  const PositionRange range{edit.position, edit.end};
  const auto first = static_cast<std::ptrdiff_t>(edit.position), last = static_cast<std::ptrdiff_t>(edit.end);
  const std::vector<TokenId> before(tokens_.begin() + first, tokens_.begin() + last);
  masked_total_ -= masked_count(range);
  const std::ptrdiff_t opened = edit.kind == EditKind::kInsert ? first : last - 1;
  if (edit.kind == EditKind::kInsert) {
    std::move_backward(tokens_.begin() + first, tokens_.begin() + last - 1, tokens_.begin() + last);
    std::move_backward(masked_.begin() + first, masked_.begin() + last - 1, masked_.begin() + last);
  } else {
    std::move(tokens_.begin() + first + 1, tokens_.begin() + last, tokens_.begin() + first);
    std::move(masked_.begin() + first + 1, masked_.begin() + last, masked_.begin() + first);
  }
  tokens_[to_size(opened)] = mask_;
  masked_[to_size(opened)] = 1;
  masked_total_ += masked_count(range);
  // A mask shows its token, so equal tokens are equal states.
  return !std::equal(before.begin(), before.end(), tokens_.begin() + first);
}

}  // namespace dllm
