// The whole answer competes at once: Dream, and LLaDA with block length = generation length.
#include "decode/registry.h"

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

WindowEntry whole_window() {
  return declare_method<Window>("whole", "the whole answer at once", OptionRows<NoOptions>{},
                                [](const NoOptions&, const MethodContext&) { return std::make_unique<WholeWindow>(); })
      .not_read({"block_length", "block_origin", "suffix"});
}

}  // namespace dllm
