// A window of constant size that follows the commit frontier, the first masked position (llada.cpp, arXiv 2606.13740).
// It begins at the frontier of the pass before: a position committed in the last pass stays for one more pass, so that
// its K/V are computed from its token. With slide_at_once it leaves at once; the dual and vicinity caches then forward
// it as a stale row before the window, at the same cost of one row, without its neighbours.
#include <algorithm>

#include "decode/registry.h"

namespace dllm {
namespace {

struct SlidingOptions {
  bool slide_at_once = false;
};

OptionRows<SlidingOptions> sliding_rows() {
  return {option("slide_at_once", &SlidingOptions::slide_at_once,
                 "committed positions leave the window at once, not one pass later")};
}

class SlidingWindow : public Window {
 public:
  SlidingWindow(const SlidingOptions& options, const MethodContext& context)
      : at_once_(options.slide_at_once), context_(context) {}

  std::optional<WindowStep> next(const Canvas& canvas) override {
    const Position frontier = canvas.first_masked(canvas.prompt_end());
    if (frontier == canvas.size()) return std::nullopt;
    frontier_ = frontier;
    // A decoder that masks tokens again moves the frontier back.
    const Position begin = !at_once_ && last_frontier_ >= 0 ? std::min(last_frontier_, frontier) : frontier;
    // Measured from the frontier: rows kept for their K/V do not take places from positions to be decided.
    const Position end = std::min(frontier + context_.block_length, canvas.size());
    return WindowStep{{begin, end}, end, block_at(context_, canvas, frontier).begin};
  }

  void observe(const WindowFeedback&) override { last_frontier_ = frontier_; }

 private:
  bool at_once_;
  MethodContext context_;
  Position frontier_ = -1;       ///< of the window handed out last
  Position last_frontier_ = -1;  ///< of the last pass; -1: none yet
};

}  // namespace

WindowEntry sliding_window() {
  return declare_method<Window>("sliding", "one block's length from the first mask", sliding_rows(),
                                [](const SlidingOptions& options, const MethodContext& context) {
                                  return std::make_unique<SlidingWindow>(options, context);
                                })
      .standard_for("for models whose masks see all decided tokens (WeDLM)",
                    [](const ModelDesc& desc) { return desc.decided_first; });
}

}  // namespace dllm
