// After DMax (Chen et al., arXiv 2604.08302): committed tokens stay soft. A block's masks are committed from the left,
// up to the first one that is less sure than the threshold, at least one. Every pass predicts the block's tokens again
// and replaces them, and reads each as the mixture p E[token] + (1 - p) E[mask], scaled to p |E[token]| + (1 - p)
// |E[mask]|, p being its probability in the last pass. The block ends when a pass changes nothing, or all of it is
// sure.
//
// `mixed_tokens` above 1 mixes the likeliest tokens by their probabilities, and the mask by the rest. `hard_tokens`
// reads tokens as they are. A model must have been trained for mixtures (ModelDesc::soft_tokens).
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/to_size.h"
#include "decode/decoder/shared_rows.h"
#include "decode/registry.h"

namespace dllm {
namespace {

struct DmaxOptions : ThresholdOptions {
  double sure_threshold = 0.9;
  std::int32_t mixed_tokens = 1;
  std::optional<std::int32_t> most_passes;
  bool hard_tokens = false;
};

constexpr double kTrainedThreshold = 0.5;  ///< that of models trained for it

OptionRows<DmaxOptions> dmax_rows() {
  using O = DmaxOptions;
  // README.md and scripts of github.com/czg1225/DMax.
  OptionRows<ThresholdOptions> threshold = threshold_rows();
  threshold.front() = std::move(threshold.front())
                          .otherwise("0.9; 0.5 for models trained to read tokens as mixtures",
                                     [](const ThresholdOptions& own, const ModelDesc& desc, const MethodContext&) {
                                       return OptionValue(desc.soft_tokens ? kTrainedThreshold : own.threshold);
                                     });
  return join_rows<O>(
      std::move(threshold),
      OptionRows<O>{
          option("sure_threshold", &O::sure_threshold, 0, 2, "",
                 "a block ends when all of its tokens have this probability, or none changes"),
          option("most_passes", &O::most_passes, 1, kMostInteger, "passes", "of a block: tokens may alternate")
              .otherwise("one per position of a block",
                         [](const O&, const ModelDesc&, const MethodContext& context) {
                           return OptionValue(std::int64_t{context.block_length});
                         }),
          option("hard_tokens", &O::hard_tokens, "tokens are read as they are"),
          option("mixed_tokens", &O::mixed_tokens, 1, 16, "tokens", "likeliest tokens that a mixture has")
              .only("without --hard-tokens", [](const O& o) { return !o.hard_tokens; })});
}

class Dmax : public Decoder {
 public:
  explicit Dmax(const DmaxOptions& config) : config_(config) {}

  bool revises() const override { return true; }
  bool holds_window(const DecodeContext& context) const override { return context.window == window_ && !done_; }
  std::vector<Position> wanted(const DecodeContext& context) override { return generated_positions(context); }
  void configure(ScoreRequest& request) const override {
    // The mask may be among them.
    if (!config_.hard_tokens && config_.mixed_tokens > 1)
      request.top_tokens = std::max(request.top_tokens, config_.mixed_tokens + 1);
  }

  std::vector<SoftToken> soft_tokens(const DecodeContext& context) override {
    std::vector<SoftToken> result;
    if (config_.hard_tokens) return result;
    for (const auto& [position, mixture] : mixtures_)
      if (context.window.contains(position) && !context.canvas.masked(position)) result.push_back({position, mixture});
    return result;
  }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    if (context.window != window_) begin(context.window);
    ++passes_;
    std::vector<Edit> edits;
    bool leading = true, first = true, sure = true, changed = false;
    for (const Candidate& candidate : candidates) {
      const Position p = candidate.position;
      if (context.canvas.masked(p)) {
        const bool enough = candidate.eligible && candidate.confidence >= config_.threshold;
        if (leading && candidate.eligible && (enough || first)) {
          edits.push_back(commit(candidate));
          mix(context.canvas.mask(), candidate);
        }
        leading = leading && enough;
        first = false;
        changed = true;
      } else if (candidate.eligible) {
        if (candidate.token != context.canvas.token(p)) {
          edits.push_back(commit(candidate));
          edits.back().kind = EditKind::kRevise;
          changed = true;
        }
        mix(context.canvas.mask(), candidate);
      }
      sure = sure && candidate.confidence >= config_.sure_threshold;
    }
    done_ = !changed || sure || passes_ >= config_.most_passes.value_or(context.window.size());
    return edits;
  }

 private:
  void begin(PositionRange window) {
    window_ = window;
    passes_ = 0;
    mixtures_.clear();
  }

  void mix(TokenId mask, const Candidate& candidate) {
    if (config_.hard_tokens) return;
    std::vector<MixedToken>& mixture = mixtures_[candidate.position];
    mixture = {{candidate.token, static_cast<float>(candidate.confidence)}};
    double rest = 1 - candidate.confidence;
    for (const TopToken& other : candidate.top) {
      if (other.token == mask || other.token == candidate.token) continue;
      if (mixture.size() == to_size(config_.mixed_tokens)) break;
      const double p = probability_of(candidate, other.logit);
      mixture.push_back({other.token, static_cast<float>(p)});
      rest -= p;
    }
    mixture.push_back({mask, static_cast<float>(std::max(0.0, rest))});
  }

  DmaxOptions config_;
  PositionRange window_{-1, -1};
  std::map<Position, std::vector<MixedToken>> mixtures_;  ///< how the window's tokens are read
  std::int32_t passes_ = 0;
  bool done_ = true;
};

}  // namespace

DecoderEntry dmax_decoder() {
  return declare_method<Decoder>(
             "dmax", "tokens of the block stay mixtures and are predicted again until they settle (after DMax)",
             dmax_rows(),
             [](const DmaxOptions& options, const MethodContext&) { return std::make_unique<Dmax>(options); })
      .only_for(has_mask)
      .not_read({"cfg_scale", "smoothing"})
      .standard_for("for models trained to read tokens as mixtures",
                    [](const ModelDesc& desc) { return desc.mask.has_value() && desc.soft_tokens; })
      .depending_on(dmax_rows(), [](const DmaxOptions& options) {
        return MethodTraits{.greedy = true, .revises = true, .soft = !options.hard_tokens};
      });
}

}  // namespace dllm
