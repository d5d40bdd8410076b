// Semi-autoregressive blocks: the first block that still has a mask, on a grid from the prompt's end (LLaDA) or from
// position 0 (LLaDA2, SDAR: a prompt may share its last block with the answer). The last block is clipped.
#include "decode/registry.h"

namespace dllm {
namespace {

class BlockWindow : public Window {
 public:
  explicit BlockWindow(const MethodContext& context) : context_(context) {}

  std::optional<WindowStep> next(const Canvas& canvas) override {
    const Position masked = canvas.first_masked(canvas.prompt_end());
    if (masked == canvas.size()) return std::nullopt;
    const PositionRange block = block_at(context_, canvas, masked);
    return WindowStep{block, block.end, block.begin};
  }

 private:
  MethodContext context_;
};

}  // namespace

WindowEntry block_window() {
  return declare_method<Window>(
             "block", "the first block that has a mask", OptionRows<NoOptions>{},
             [](const NoOptions&, const MethodContext& context) { return std::make_unique<BlockWindow>(context); })
      .always({.whole_blocks = true})
      .standard_for("", [](const ModelDesc& desc) { return !desc.decided_first; });
}

}  // namespace dllm
