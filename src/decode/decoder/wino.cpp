// WINO, "wide in, narrow out" (Hong et al., arXiv 2507.18578; the authors' decoding.py). Wide in: every mask of the
// block whose confidence exceeds `threshold` becomes a token, at most max(5, 70 %) of the masks and 20 of them, at
// least the best. Narrow out: a token of the block becomes a mask again if its probability is below `threshold_back`
// where the model does not see it. That is asked in the same pass, by a shadow row that reads the mask. Only passes
// that commit more than one token do so, and if a pass would take back as many as the one before committed, it takes
// one fewer: so masks become fewer over time, and a block ends.
//
// Upstream's rows of masks also see each other. Here they see the block's tokens, and no mask in their own place.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/to_size.h"
#include "decode/decoder/shared_rows.h"
#include "decode/registry.h"

namespace dllm {
namespace {

struct WinoOptions : ThresholdOptions {
  WinoOptions() { threshold = 0.6; }
  double threshold_back = 0.9;
};

OptionRows<WinoOptions> wino_rows() {
  return join_rows<WinoOptions>(
      threshold_rows(), OptionRows<WinoOptions>{option("threshold_back", &WinoOptions::threshold_back, 0, 2, "",
                                                       "probability, without itself in the input, below which a token "
                                                       "of the block becomes a mask again")});
}

class Wino : public Decoder {
 public:
  explicit Wino(const WinoOptions& config) : config_(config) {}

  bool revises() const override { return true; }
  bool keeps_schedule() const override { return acted_; }

  std::vector<Position> shadowed(const DecodeContext& context) override {
    std::vector<Position> tokens = generated_positions(context);
    std::erase_if(tokens, [&](Position p) { return context.canvas.masked(p); });
    return tokens;
  }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    if (context.window.begin != block_) {
      block_ = context.window.begin;
      last_accepted_ = kFirstAccepted;
    }
    std::vector<Edit> edits = wide_in(candidates);
    const std::size_t accepted = edits.size();
    if (accepted > 1) narrow_out(context, edits);
    last_accepted_ = std::max<std::size_t>(accepted, 1);
    acted_ = accepted > 0;
    return edits;
  }

 private:
  static constexpr std::size_t kFirstAccepted = 30;  ///< upstream's, before a block's first pass

  std::vector<Edit> wide_in(std::span<const Candidate> masks) const {
    const auto share = static_cast<std::size_t>(0.7 * static_cast<double>(masks.size()));
    const std::size_t most = std::min<std::size_t>(std::max<std::size_t>(share, 5), 20);
    const auto sure = to_size(std::ranges::count_if(
        masks, [&](const Candidate& mask) { return mask.eligible && mask.confidence > config_.threshold; }));
    return commit_best(masks, std::clamp<std::size_t>(sure, 1, most),
                       [](const Candidate& mask) { return mask.log_odds; });
  }

  void narrow_out(const DecodeContext& context, std::vector<Edit>& edits) const {
    std::vector<std::pair<double, Position>> doubted;
    for (const Candidate& shadow : context.shadows)
      if (const double own = probability_of_queried(shadow); own < config_.threshold_back)
        doubted.emplace_back(own, shadow.position);
    std::ranges::stable_sort(doubted, {}, &std::pair<double, Position>::first);
    if (doubted.size() >= last_accepted_) doubted.resize(last_accepted_ - 1);
    for (const auto& [own, position] : doubted)
      edits.push_back({position, context.canvas.mask(), EditKind::kRemask, own});
  }

  WinoOptions config_;
  Position block_ = -1;
  std::size_t last_accepted_ = kFirstAccepted;
  bool acted_ = false;
};

}  // namespace

DecoderEntry wino_decoder() {
  return declare_method<Decoder>(
             "wino", "many tokens at once; those that the rest does not predict become masks again (WINO)", wino_rows(),
             [](const WinoOptions& options, const MethodContext&) { return std::make_unique<Wino>(options); })
      .only_for(has_mask)
      .always({.greedy = true, .revises = true, .shadows = true});
}

}  // namespace dllm
