#include "decode/replay_decoder.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace dllm {
namespace {

class ReplayDecoder final : public Decoder {
 public:
  ReplayDecoder(std::unique_ptr<Decoder> own, CommitSchedule schedule, const ModelDesc& desc)
      : own_(std::move(own)), schedule_(std::move(schedule)), stop_ids_(desc.stop_ids), mask_(desc.mask) {
    assert(!own_->revises());
    assert(!schedule_.stop || !stop_ids_.empty());
    if (!schedule_.pass_of.empty()) last_ = *std::max_element(schedule_.pass_of.begin(), schedule_.pass_of.end());
    while (other_ == mask_ || std::find(stop_ids_.begin(), stop_ids_.end(), other_) != stop_ids_.end()) ++other_;
  }

  void configure(ScoreRequest& request) const override { own_->configure(request); }
  std::vector<Position> wanted(const DecodeContext& context) override { return own_->wanted(context); }
  std::vector<TokenQuery> queries(const DecodeContext& context) override { return own_->queries(context); }
  bool greedy() const override { return own_->greedy(); }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    std::vector<Edit> edits;
    for (const Candidate& candidate : candidates) {
      const Position p = candidate.position - context.canvas.prompt_end();
      if (!context.canvas.masked(candidate.position) || pass_of(p) != pass_) continue;
      edits.push_back(commit(candidate));
      edits.back().token = token_at(p, candidate.token);
    }
    empty_ = edits.empty();
    ++pass_;
    return edits;
  }

  /// A recorded pass that committed nothing commits nothing here. After the last one the progress rule applies again.
  bool keeps_schedule() const override { return empty_ && pass_ <= last_; }

 private:
  std::int32_t pass_of(Position p) const {
    return p < static_cast<Position>(schedule_.pass_of.size()) ? schedule_.pass_of[static_cast<std::size_t>(p)] : -1;
  }
  /// The predicted token, unless it would end the answer at another place or not at all. Free after the end.
  TokenId token_at(Position p, TokenId predicted) const {
    const bool ends = std::find(stop_ids_.begin(), stop_ids_.end(), predicted) != stop_ids_.end();
    if (schedule_.stop == p) return ends ? predicted : stop_ids_.front();
    const bool after = schedule_.stop && p > *schedule_.stop;
    return predicted < 0 || predicted == mask_ || (ends && !after) ? other_ : predicted;
  }

  std::unique_ptr<Decoder> own_;
  CommitSchedule schedule_;
  std::vector<TokenId> stop_ids_;
  std::optional<TokenId> mask_;
  TokenId other_ = 0;  ///< the first token that is neither the mask nor a stop token
  std::int32_t pass_ = 0, last_ = -1;
  bool empty_ = false;
};

}  // namespace

std::unique_ptr<Decoder> make_replay_decoder(std::unique_ptr<Decoder> own, CommitSchedule schedule,
                                             const ModelDesc& desc) {
  return std::make_unique<ReplayDecoder>(std::move(own), std::move(schedule), desc);
}

}  // namespace dllm
