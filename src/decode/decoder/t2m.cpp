// Token-to-mask remasking (Yao, arXiv 2604.18738; the authors' modeling_remask.py): the threshold rule of LLaDA2.1, but
// a committed token of the block that looks wrong becomes a mask again instead of another token. Three rules say which
// tokens look wrong:
//   unlikely   the model gives the token itself a probability below the bound (0.5)
//   overruled  another token has a probability above the bound (0.9)
//   falling    the token's probability has fallen by more than the bound (0.3) since the pass before
// A position becomes a mask again at most 5 times in a block, and a pass takes back at most 25 % of the block's tokens
// (at least one), the worst first. When the block has no mask left, up to `max_post_steps` further passes look for such
// tokens; a pass that finds none ends the block.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/to_size.h"
#include "decode/decoder/shared_rows.h"
#include "decode/registry.h"

namespace dllm {
namespace {

enum class SuspectRule { kUnlikely, kOverruled, kFalling };

struct T2mOptions : ThresholdOptions {
  T2mOptions() { threshold = 0.7; }
  SuspectRule suspect = SuspectRule::kUnlikely;
  std::optional<double> suspect_bound;
  std::int32_t max_post_steps = 16, most_remasks = 5;
  double remask_share = 0.25;

  double bound() const {
    if (suspect_bound) return *suspect_bound;
    return suspect == SuspectRule::kUnlikely ? 0.5 : suspect == SuspectRule::kOverruled ? 0.9 : 0.3;
  }
};

OptionRows<T2mOptions> t2m_rows() {
  using O = T2mOptions;
  return join_rows<O>(
      threshold_rows(),
      OptionRows<O>{
          option("suspect", &O::suspect,
                 {{"unlikely", SuspectRule::kUnlikely},
                  {"overruled", SuspectRule::kOverruled},
                  {"falling", SuspectRule::kFalling}},
                 "which tokens become masks again: those of a low probability, those that a confident other token "
                 "would replace, or those whose probability has fallen"),
          option("suspect_bound", &O::suspect_bound, 0, 1, "", "bound of that rule")
              .otherwise("0.5, 0.9 and 0.3 for the three",
                         [](const O& o, const ModelDesc&, const MethodContext&) { return OptionValue(o.bound()); }),
          option("max_post_steps", &O::max_post_steps, 0, 1e6, "passes",
                 "passes that may edit a block after its last mask"),
          option("most_remasks", &O::most_remasks, 0, kMostInteger, "",
                 "how often a position of a block may become a mask again"),
          option("remask_share", &O::remask_share, 0, 1, "",
                 "share of a block's tokens that a pass takes back at most"),
      });
}

class T2m : public Decoder {
 public:
  explicit T2m(const T2mOptions& config) : config_(config) {}

  bool revises() const override { return true; }
  bool keeps_schedule() const override { return acted_; }
  bool holds_window(const DecodeContext& context) const override {
    return context.window.begin == block_ && !settled_ && post_steps_ < config_.max_post_steps;
  }

  std::vector<Position> wanted(const DecodeContext& context) override {
    if (context.window.begin != block_) {
      block_ = context.window.begin;
      settled_ = false;
      post_steps_ = 0;
      remasks_.clear();
      before_.clear();
    }
    return generated_positions(context);
  }

  std::vector<TokenQuery> queries(const DecodeContext& context) override {
    std::vector<TokenQuery> result;
    for (const Position p : generated_positions(context))
      if (!context.canvas.masked(p)) result.push_back({p, context.canvas.token(p)});
    return result;
  }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    std::vector<Candidate> masks;
    std::vector<Suspect> suspects;
    std::map<Position, double> now;
    std::size_t tokens = 0;
    for (const Candidate& candidate : candidates) {
      if (context.canvas.masked(candidate.position)) {
        masks.push_back(candidate);
        continue;
      }
      ++tokens;
      const double own = probability_of_queried(candidate);
      now[candidate.position] = own;
      const double doubt = doubt_of(context, candidate, own);
      if (doubt > 0 && remasks_[candidate.position] < config_.most_remasks)
        suspects.push_back({doubt, candidate.position, own});
    }
    std::vector<Edit> edits = draft_edits(masks);
    for (const Edit& edit : edits) now[edit.position] = edit.confidence;
    if (tokens == 0) now.clear();  // upstream compares from the first pass on that had a token to judge
    before_ = std::move(now);
    take_back(context.canvas, tokens, std::move(suspects), edits);
    acted_ = !edits.empty();
    if (masks.empty()) {
      ++post_steps_;
      settled_ = edits.empty();
    }
    return edits;
  }

 private:
  struct Suspect {
    double doubt;  ///< how far beyond the bound
    Position position;
    double own;
  };

  /// Above 0: the token looks wrong.
  double doubt_of(const DecodeContext& context, const Candidate& candidate, double own) const {
    switch (config_.suspect) {
      case SuspectRule::kUnlikely:
        return config_.bound() - own;
      case SuspectRule::kOverruled:
        return candidate.eligible && candidate.token != context.canvas.token(candidate.position)
                   ? candidate.confidence - config_.bound()
                   : 0;
      case SuspectRule::kFalling:
        break;
    }
    const auto known = before_.find(candidate.position);
    return known == before_.end() ? 0 : known->second - own - config_.bound();
  }

  std::vector<Edit> draft_edits(std::span<const Candidate> masks) const {
    const auto sure = to_size(std::ranges::count_if(
        masks, [&](const Candidate& mask) { return mask.eligible && mask.confidence > config_.threshold; }));
    return commit_best(masks, std::max<std::size_t>(sure, 1), [](const Candidate& mask) { return mask.log_odds; });
  }

  void take_back(const Canvas& canvas, std::size_t tokens, std::vector<Suspect> suspects, std::vector<Edit>& edits) {
    const auto share = static_cast<std::size_t>(config_.remask_share * static_cast<double>(tokens));
    std::ranges::stable_sort(suspects, std::ranges::greater{}, &Suspect::doubt);
    if (suspects.size() > std::max<std::size_t>(share, 1)) suspects.resize(std::max<std::size_t>(share, 1));
    for (const Suspect& suspect : suspects) {
      ++remasks_[suspect.position];
      before_.erase(suspect.position);
      edits.push_back({suspect.position, canvas.mask(), EditKind::kRemask, suspect.own});
    }
  }

  T2mOptions config_;
  Position block_ = -1;
  bool settled_ = false, acted_ = false;
  std::int32_t post_steps_ = 0;
  std::map<Position, std::int32_t> remasks_;
  std::map<Position, double> before_;  ///< of each token, the probability in the last pass
};

}  // namespace

DecoderEntry t2m_decoder() {
  return declare_method<Decoder>(
             "t2m", "the threshold rule; tokens that look wrong become masks again (T2M for LLaDA2.1)", t2m_rows(),
             [](const T2mOptions& options, const MethodContext&) { return std::make_unique<T2m>(options); })
      .always({.greedy = true, .revises = true});
}

}  // namespace dllm
