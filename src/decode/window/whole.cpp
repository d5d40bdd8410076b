// The whole answer competes at once: Dream, and LLaDA with block length = generation length.
#include "decode/window.h"

namespace dllm {
namespace {

class WholeWindow : public Window {
 public:
  std::optional<WindowStep> next(const Canvas& canvas) override {
    if (canvas.masked_count() == 0) return std::nullopt;
    return WindowStep{{canvas.prompt_end(), canvas.size()}, canvas.size(), canvas.prompt_end()};
  }
};

}  // namespace

std::unique_ptr<Window> make_whole_window(const WindowConfig&) { return std::make_unique<WholeWindow>(); }

}  // namespace dllm
