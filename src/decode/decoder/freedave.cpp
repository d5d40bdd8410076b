// FreeDave, "free draft-and-verification" (Wu and Zhang, arXiv 2510.00294): a rule commits what it always commits, and
// the passes that it would make next are guessed and forwarded in the same pass. A guess is what the rule would commit
// of the last pass's predictions, if no further pass changed them. The loop keeps as many guesses as turn out right
// (Guesses), so the answer is the rule's own. A pass has the rows of `drafts` more passes; where a pass of few rows
// costs as much as its weights, that is nearly free.
//
// The paper verifies one batch of states against each other, as is done here. It guesses over the whole block; here no
// guess goes beyond the window, whose successor nobody knows before it is full.
#include <algorithm>
#include <cassert>
#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "decode/decoder/shared_rows.h"
#include "decode/registry.h"

namespace dllm {

DecoderEntry low_confidence_decoder();
DecoderEntry threshold_decoder();

namespace {

struct FreeDaveOptions : StepsOptions, ThresholdOptions {
  enum class Rule { kSteps, kThreshold };
  Rule rule = Rule::kSteps;
  std::int32_t drafts = 3;
};

OptionRows<FreeDaveOptions> freedave_rows() {
  using O = FreeDaveOptions;
  return join_rows<O>(
      rows_only<O>(join_rows<O>(steps_rows()), "with --rule low-confidence",
                   [](const O& o) { return o.rule == O::Rule::kSteps; }),
      rows_only<O>(join_rows<O>(threshold_rows()), "with --rule threshold",
                   [](const O& o) { return o.rule == O::Rule::kThreshold; }),
      OptionRows<O>{option("rule", &O::rule, {{"low-confidence", O::Rule::kSteps}, {"threshold", O::Rule::kThreshold}},
                           "the algorithm whose passes are guessed"),
                    option("drafts", &O::drafts, 1, Backend::kMostBranchDepth, "passes",
                           "guessed, and forwarded together with the next one")});
}

class FreeDave : public Decoder {
 public:
  FreeDave(std::int32_t drafts, std::unique_ptr<Decoder> rule) : drafts_(drafts), rule_(std::move(rule)) {}

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    std::vector<Edit> edits = rule_->decode(context, candidates);
    last_.assign(candidates.begin(), candidates.end());
    for (Candidate& candidate : last_) candidate.queried = {}, candidate.top = {}, candidate.logits = {};
    leave_undecided(edits, last_);
    return edits;
  }

  std::vector<std::vector<Edit>> guesses(const DecodeContext& context) override {
    std::vector<Candidate> left = last_;
    std::erase_if(left, [&](const Candidate& candidate) {
      return !context.window.contains(candidate.position) || !context.canvas.masked(candidate.position);
    });
    Canvas canvas = context.canvas;
    std::vector<std::vector<Edit>> guessed;
    for (std::int32_t i = 0; i < drafts_ && !left.empty(); ++i) {
      const std::vector<Edit> edits = rule_->decode(context.after(canvas, i), left);
      if (edits.empty()) break;
      for (const Edit& edit : edits) canvas.apply(edit);
      leave_undecided(edits, left);
      guessed.push_back(edits);
    }
    return guessed;
  }

 private:
  static void leave_undecided(const std::vector<Edit>& edits, std::vector<Candidate>& candidates) {
    std::erase_if(candidates, [&](const Candidate& candidate) {
      return std::ranges::any_of(edits, [&](const Edit& edit) { return edit.position == candidate.position; });
    });
  }

  std::int32_t drafts_;
  std::unique_ptr<Decoder> rule_;  ///< decides by the context and the candidates alone
  std::vector<Candidate> last_;    ///< of the last pass, without those that it committed
};

std::unique_ptr<Decoder> rule_of(const FreeDaveOptions& options, const MethodContext& context) {
  const bool steps = options.rule == FreeDaveOptions::Rule::kSteps;
  OptionMap chosen;
  if (!steps) chosen.emplace("threshold", options.threshold);
  if (steps) chosen.emplace("steps", std::int64_t{options.steps_of(context)});
  auto rule = (steps ? low_confidence_decoder() : threshold_decoder()).make(chosen, context);
  assert(rule);
  return *std::move(rule);
}

}  // namespace

DecoderEntry freedave_decoder() {
  return declare_method<Decoder>("freedave", "the answer of another algorithm in fewer passes of more rows (FreeDave)",
                                 freedave_rows(),
                                 [](const FreeDaveOptions& options, const MethodContext& context) {
                                   return std::make_unique<FreeDave>(options.drafts, rule_of(options, context));
                                 })
      .only_for(has_mask)
      .depending_on(freedave_rows(), [](const FreeDaveOptions& o) { return MethodTraits{.branches = o.drafts}; });
}

}  // namespace dllm
