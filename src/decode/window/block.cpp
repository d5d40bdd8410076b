// Semi-autoregressive blocks: the first block that still has a mask, on a grid from the prompt's end (LLaDA) or from
// position 0 (LLaDA2, SDAR: a prompt may share its last block with the answer). The last block is clipped.
#include "decode/window.h"

namespace dllm {
namespace {

class BlockWindow : public Window {
 public:
  explicit BlockWindow(const WindowConfig& config) : config_(config) {}

  std::optional<WindowStep> next(const Canvas& canvas) override {
    const Position masked = canvas.first_masked(canvas.prompt_end());
    if (masked == canvas.size()) return std::nullopt;
    const PositionRange block = block_at(config_, canvas, masked);
    return WindowStep{block, block.end, block.begin};
  }

 private:
  WindowConfig config_;
};

}  // namespace

std::unique_ptr<Window> make_block_window(const WindowConfig& config) { return std::make_unique<BlockWindow>(config); }

}  // namespace dllm
