// Blocks in a pipeline (d3LLM, github.com/hao-ai-lab/d3LLM; D2F, arXiv 2508.09192): the next block begins when a share
// of the last one is decided, and all blocks that have begun compete.
#include <algorithm>

#include "decode/registry.h"

namespace dllm {
namespace {

struct PipelineOptions {
  double begin_share = 0.1;
};

OptionRows<PipelineOptions> pipeline_rows() {
  return {option("begin_share", &PipelineOptions::begin_share, 0.001, 1, "",
                 "decided share of the last block at which the next one begins; 1: one block at a time")};
}

class PipelineWindow : public Window {
 public:
  PipelineWindow(const PipelineOptions& options, const MethodContext& context)
      : share_(options.begin_share), context_(context) {}

  std::optional<WindowStep> next(const Canvas& canvas) override {
    const Position masked = canvas.first_masked(canvas.prompt_end());
    if (masked == canvas.size()) return std::nullopt;
    next_end_ = grown(canvas);
    const Position begin = block_at(context_, canvas, masked).begin;
    return WindowStep{{begin, next_end_}, next_end_, begin};
  }

  void observe(const WindowFeedback&) override { end_ = next_end_; }

 private:
  /// One block more at most in each pass.
  Position grown(const Canvas& canvas) const {
    if (end_ < 0) return block_at(context_, canvas, canvas.prompt_end()).end;
    if (end_ == canvas.size()) return end_;
    const PositionRange last = block_at(context_, canvas, end_ - 1);
    const double decided = 1.0 - static_cast<double>(canvas.masked_count(last)) / static_cast<double>(last.size());
    return decided >= share_ ? block_at(context_, canvas, end_).end : end_;
  }

  double share_;
  MethodContext context_;
  Position end_ = -1;       ///< of the last pass; -1: none yet
  Position next_end_ = -1;  ///< of the window handed out last
};

}  // namespace

WindowEntry pipeline_window() {
  return declare_method<Window>("pipeline", "blocks that begin when a share of the one before is decided",
                                pipeline_rows(), [](const PipelineOptions& options, const MethodContext& context) {
                                  return std::make_unique<PipelineWindow>(options, context);
                                });
}

}  // namespace dllm
