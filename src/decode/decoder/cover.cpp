// After COVER (Xiang et al., arXiv 2602.06161): tokens are judged without themselves in the input while every other row
// still sees them. Drafts commit masks above a threshold; a few committed tokens of the window ("seeds") are judged in
// the same pass, each by a shadow row, and become masks again if the rest does not predict them. Because a seed's own
// K/V stay, judging does not weaken the context of the drafts.
//
// Of the paper, its abstract and introduction were read, not its equations. It ranks seeds by uncertainty, influence on
// later tokens and drift of their K/V, and adapts their number. Here the rank is (1 - probability when last judged or
// committed) times one plus the number of tokens that have changed in the window since; a token whose window has not
// changed since is not judged again. Influence would take attention weights, which no backend reports. The number of
// seeds doubles after a pass in which more than half failed, and halves after one in which none did.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "base/to_size.h"
#include "decode/decoder/shared_rows.h"
#include "decode/registry.h"

namespace dllm {
namespace {

struct CoverOptions : ThresholdOptions {
  CoverOptions() { threshold = 0.7; }
  double verify_threshold = 0.3;
  std::int32_t most_seeds = 8, max_remasks = 2;
};

OptionRows<CoverOptions> cover_rows() {
  using O = CoverOptions;
  return join_rows<O>(
      threshold_rows(),
      OptionRows<O>{
          option("verify_threshold", &O::verify_threshold, 0, 1, "",
                 "probability, without itself in the input, below which a token becomes a mask again"),
          option("most_seeds", &O::most_seeds, 1, kMostPositions, "tokens", "tokens that one pass judges at most"),
          option("max_remasks", &O::max_remasks, 0, kMostInteger, "", "how often a position may become a mask again"),
      });
}

class Cover : public Decoder {
 public:
  explicit Cover(const CoverOptions& config) : config_(config), seeds_(config.most_seeds) {}

  bool revises() const override { return true; }
  bool keeps_schedule() const override { return acted_; }

  std::vector<Position> shadowed(const DecodeContext& context) override {
    std::vector<std::pair<double, Position>> ranked;
    for (const auto& [position, token] : tokens_) {
      if (!context.window.contains(position) || context.canvas.masked(position)) continue;
      if (token.remasks >= config_.max_remasks) continue;
      const auto since = static_cast<double>(changes_ - token.changes);
      if (since > 0) ranked.emplace_back(-(1 - token.probability) * (1 + since), position);
    }
    std::ranges::sort(ranked);
    if (ranked.size() > to_size(seeds_)) ranked.resize(to_size(seeds_));
    std::vector<Position> result;
    for (const auto& [rank, position] : ranked) result.push_back(position);
    std::ranges::sort(result);
    return result;
  }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    std::vector<Edit> edits = draft_edits(candidates);
    acted_ = !edits.empty();
    judge(context, edits);
    changes_ += static_cast<std::int64_t>(edits.size());
    for (const Edit& edit : edits) {
      Token& token = tokens_[edit.position];
      if (edit.kind == EditKind::kRemask) ++token.remasks;
      token.probability = edit.confidence;
      // Tokens of one pass have not seen each other: the pass's other edits count as changes since.
      token.changes =
          edit.kind == EditKind::kRemask ? changes_ : changes_ - static_cast<std::int64_t>(edits.size()) + 1;
    }
    return edits;
  }

 private:
  struct Token {
    double probability = 0;
    std::int64_t changes = 0;  ///< of the window, until the token was judged or committed
    std::int32_t remasks = 0;
  };

  std::vector<Edit> draft_edits(std::span<const Candidate> candidates) const {
    const auto sure = to_size(std::ranges::count_if(candidates, [&](const Candidate& candidate) {
      return candidate.eligible && candidate.confidence >= config_.threshold;
    }));
    return commit_best(candidates, std::max<std::size_t>(sure, 1),
                       [](const Candidate& candidate) { return candidate.log_odds; });
  }

  void judge(const DecodeContext& context, std::vector<Edit>& edits) {
    std::size_t failed = 0;
    for (const Candidate& shadow : context.shadows) {
      Token& token = tokens_[shadow.position];
      token.probability = probability_of_queried(shadow);
      token.changes = changes_;
      if (!(token.probability < config_.verify_threshold)) continue;
      ++failed;
      edits.push_back({shadow.position, context.canvas.mask(), EditKind::kRemask, token.probability});
    }
    if (context.shadows.empty()) return;
    if (2 * failed > context.shadows.size()) seeds_ = std::min(config_.most_seeds, 2 * seeds_);
    if (failed == 0) seeds_ = std::max(1, seeds_ / 2);
  }

  CoverOptions config_;
  std::int32_t seeds_;
  std::map<Position, Token> tokens_;  ///< committed, or masked again
  std::int64_t changes_ = 0;          ///< edits so far
  bool acted_ = false;
};

}  // namespace

DecoderEntry cover_decoder() {
  return declare_method<Decoder>(
             "cover", "tokens are judged without themselves, in place; doubted ones become masks again (after COVER)",
             cover_rows(),
             [](const CoverOptions& options, const MethodContext&) { return std::make_unique<Cover>(options); })
      .only_for(has_mask)
      .always({.greedy = true, .revises = true, .shadows = true});
}

}  // namespace dllm
