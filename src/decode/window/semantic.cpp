// Blocks that end where a line does (AdaBlock-dLLM, Lu et al. 2025, arXiv:2509.26432). The first pass of a block looks
// for line breaks among the predictions of a quarter of the answer's length: the block ends with the most confident
// one, or has the usual length if none is confident enough. The same pass already decides positions of the block.
#include <algorithm>

#include "decode/decoder/decoder.h"
#include "decode/registry.h"

namespace dllm {
namespace {

struct SemanticOptions {
  double delimiter_confidence = 0.3, delimiter_reach = 0.25;
};

OptionRows<SemanticOptions> semantic_rows() {
  using O = SemanticOptions;
  return {option("delimiter_confidence", &O::delimiter_confidence, 0, 1, "",
                 "confidence of a predicted line break at which a block ends with it"),
          option("delimiter_reach", &O::delimiter_reach, 0, 1, "",
                 "share of the answer in which line breaks are looked for")};
}

class SemanticWindow : public Window {
 public:
  SemanticWindow(const SemanticOptions& options, const MethodContext& context) : config_(options), context_(context) {}

  std::optional<WindowStep> next(const Canvas& canvas) override {
    const Position masked = canvas.first_masked(canvas.prompt_end());
    if (masked == canvas.size()) return std::nullopt;
    if (masked >= block_.end) {
      const auto reach = static_cast<Position>(config_.delimiter_reach * static_cast<double>(context_.length));
      block_ = {masked, std::min(canvas.size(), masked + std::max(reach, context_.block_length))};
    }
    return WindowStep{block_, block_.end, block_.begin};
  }

  Position cut(PositionRange, std::span<const Candidate> predictions) override {
    const Candidate* best = nullptr;
    const Position reach = block_.begin + static_cast<Position>(config_.delimiter_reach * context_.length);
    for (const Candidate& candidate : predictions)
      if (candidate.position < reach && std::ranges::count(context_.newlines, candidate.token) > 0 &&
          (best == nullptr || candidate.confidence > best->confidence))
        best = &candidate;
    const bool sure = best != nullptr && best->confidence >= config_.delimiter_confidence;
    block_.end = std::min(block_.end, sure ? best->position + 1 : block_.begin + context_.block_length);
    return block_.end;
  }

 private:
  SemanticOptions config_;
  MethodContext context_;
  PositionRange block_{0, 0};
};

}  // namespace

WindowEntry semantic_window() {
  return declare_method<Window>("semantic", "a block that ends with a line (AdaBlock)", semantic_rows(),
                                [](const SemanticOptions& options, const MethodContext& context) {
                                  return std::make_unique<SemanticWindow>(options, context);
                                })
      .only_for([](const ModelDesc& desc) -> Expected<void> {
        if (!desc.newlines.empty()) return {};
        return Error{ErrorCode::kUsage, "the model's vocabulary has no token for a line break", "--window",
                     "give --window block"};
      });
}

}  // namespace dllm
