// A window of constant size that follows the commit frontier, the first masked position (llada.cpp, dllm-reference D.2
// step 1). Its begin is the frontier of the pass before (D.7 A2): a position committed in the last pass stays for one
// more, so that its K/V are made from its token. With slide_late off it leaves at once; the dual and vicinity caches
// then forward it as a stale row behind the window, which costs the same row and none of its neighbours.
#include <algorithm>

#include "decode/window.h"

namespace dllm {
namespace {

class SlidingWindow : public Window {
 public:
  explicit SlidingWindow(const WindowConfig& config) : config_(config) {}

  std::optional<WindowStep> next(const Canvas& canvas) override {
    const Position frontier = canvas.first_masked(canvas.prompt_end());
    if (frontier == canvas.size()) return std::nullopt;
    frontier_ = frontier;
    // A decoder that masks again moves the frontier back.
    const Position begin = config_.slide_late && last_frontier_ >= 0 ? std::min(last_frontier_, frontier) : frontier;
    // Measured from the frontier: the rows that stay for their K/V do not take places from those to be decided.
    const Position end = std::min(frontier + config_.block_length, canvas.size());
    return WindowStep{{begin, end}, end, block_at(config_, canvas, frontier).begin};
  }

  void observe(const WindowFeedback&) override { last_frontier_ = frontier_; }

 private:
  WindowConfig config_;
  Position frontier_ = -1;       ///< of the window handed out last
  Position last_frontier_ = -1;  ///< of the last pass; -1: none yet
};

}  // namespace

std::unique_ptr<Window> make_sliding_window(const WindowConfig& config) {
  return std::make_unique<SlidingWindow>(config);
}

}  // namespace dllm
