#include "decode/decoder/seen_states.h"

namespace dllm {

bool SeenStates::repeats(const DecodeContext& context, std::span<const Edit> edits) {
  if (context.window != window_) {
    window_ = context.window;
    states_.clear();
  }
  Canvas next = context.canvas;
  const auto tokens = [this](const Canvas& canvas) {
    std::vector<TokenId> result;
    for (Position p = window_.begin; p < window_.end; ++p)
      result.push_back(canvas.masked(p) ? canvas.mask() : canvas.token(p));
    return result;
  };
  states_.insert(tokens(next));
  for (const Edit& edit : edits) next.apply(edit);
  return !states_.insert(tokens(next)).second;
}

}  // namespace dllm
