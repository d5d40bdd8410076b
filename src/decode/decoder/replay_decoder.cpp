#include "decode/decoder/replay_decoder.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace dllm {
namespace {

class ReplayDecoder final : public Decoder {
 public:
  ReplayDecoder(std::unique_ptr<Decoder> own, CommitSchedule schedule, const ModelDesc& desc)
      : own_(std::move(own)), commits_(std::move(schedule), desc) {
    assert(!own_->revises());
  }

  void configure(ScoreRequest& request) const override { own_->configure(request); }
  std::vector<Position> wanted(const DecodeContext& context) override { return own_->wanted(context); }
  std::vector<TokenQuery> queries(const DecodeContext& context) override { return own_->queries(context); }
  bool replays() const override { return true; }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    std::vector<Candidate> masked;
    for (const Candidate& candidate : candidates)
      if (context.canvas.masked(candidate.position)) masked.push_back(candidate);
    std::vector<Edit> edits = commits_.edits(pass_, context.canvas.prompt_end(), masked);
    empty_ = edits.empty();
    ++pass_;
    return edits;
  }

  void skip_pass() override { ++pass_; }

  /// A recorded pass that committed nothing commits nothing here. After the last one the progress rule applies again.
  bool keeps_schedule() const override { return empty_ && pass_ <= commits_.last_pass(); }

 private:
  std::unique_ptr<Decoder> own_;
  const ScheduledCommits commits_;
  std::int32_t pass_ = 0;
  bool empty_ = false;
};

}  // namespace

ScheduledCommits::ScheduledCommits(CommitSchedule schedule, const ModelDesc& desc)
    : schedule_(std::move(schedule)), stop_ids_(desc.stop_ids), tokens_(desc) {
  assert(!schedule_.stop || !stop_ids_.empty());
  if (!schedule_.pass_of.empty()) last_ = *std::max_element(schedule_.pass_of.begin(), schedule_.pass_of.end());
}

/// The predicted token, unless it would end the answer at another place or not at all. Free after the end.
TokenId ScheduledCommits::token_at(Position p, TokenId predicted) const {
  const bool ends = std::find(stop_ids_.begin(), stop_ids_.end(), predicted) != stop_ids_.end();
  const bool after = schedule_.stop && p > *schedule_.stop;
  return tokens_.choose(predicted, after ? ends : schedule_.stop == p);
}

std::vector<Edit> ScheduledCommits::edits(std::int32_t pass, Position prompt_end,
                                          std::span<const Candidate> candidates) const {
  std::vector<Edit> edits;
  for (const Candidate& candidate : candidates) {
    const Position p = candidate.position - prompt_end;
    if (pass_of(p) != pass) continue;
    edits.push_back(commit(candidate));
    edits.back().token = token_at(p, candidate.token);
  }
  return edits;
}

std::unique_ptr<Decoder> make_replay_decoder(std::unique_ptr<Decoder> own, CommitSchedule schedule,
                                             const ModelDesc& desc) {
  if (!schedule.passes.empty()) return make_pass_replay(std::move(own), std::move(schedule.passes), desc);
  return std::make_unique<ReplayDecoder>(std::move(own), std::move(schedule), desc);
}

}  // namespace dllm
