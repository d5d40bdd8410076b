// Batched generation. A round is one forward pass of all active sequences, each at its own step; prompts of different
// lengths need no padding, because rows carry their positions and every sequence has its own cache.
#include <fmt/format.h>

#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include "base/try.h"
#include "engine/generate.h"
#include "engine/sequence.h"

namespace dllm {
namespace {

struct Active {
  std::size_t index = 0;  ///< of the request
  std::unique_ptr<Sequence> sequence;
  double seconds = 0;
  std::size_t first = 0, count = 0;  ///< its steps in the round's batch
};

Error with_index(Error error, std::size_t index) {
  error.where = fmt::format("request {}{}{}", index, error.where.empty() ? "" : ", ", error.where);
  return error;
}

ResolvedOptions with_seed(ResolvedOptions options, std::uint64_t seed) {
  options.seed = seed;
  for (auto& [key, value] : options.values)
    if (key == "seed") value = OptionValue(seed);
  return options;
}

class Batch {
 public:
  Batch(Backend& backend, const AnswerCallback& on_answer, std::size_t requests)
      : backend_(backend), on_answer_(on_answer), answers_(requests) {
    for (Generation& answer : answers_) answer.finish = FinishReason::kCancelled;
  }

  std::size_t active() const { return active_.size(); }
  bool ended() const { return ended_; }

  void join(std::size_t index, std::unique_ptr<Sequence> sequence) { active_.push_back({index, std::move(sequence)}); }

  /// One pass; finished sequences leave first.
  Expected<void> round() {
    const auto start = std::chrono::steady_clock::now();
    DLLM_TRY(const std::vector<SequenceStep> steps, gather());
    if (steps.empty()) return {};
    DLLM_TRY(const auto scores, backend_.forward(steps));
    for (Active& one : active_) {
      const auto step = one.sequence->absorb(std::span(scores).subspan(one.first, one.count));
      if (!step) return with_index(step.error(), one.index);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    for (Active& one : active_) one.seconds += seconds.count() / static_cast<double>(active_.size());
    return {};
  }

  std::vector<Generation> finish() {
    for (Active& one : active_) answers_[one.index] = one.sequence->finish(/*cancelled=*/true, one.seconds);
    return std::move(answers_);
  }

 private:
  Expected<std::vector<SequenceStep>> gather() {
    std::vector<SequenceStep> steps;
    std::vector<Active> staying;
    for (Active& one : active_) {
      const auto prepared = one.sequence->prepare();
      if (!prepared) return with_index(prepared.error(), one.index);
      const std::span<const SequenceStep> mine = *prepared;
      if (mine.empty()) {
        answers_[one.index] = one.sequence->finish(/*cancelled=*/false, one.seconds);
        if (on_answer_ && !on_answer_(one.index, answers_[one.index])) ended_ = true;
        continue;
      }
      one.first = steps.size();
      one.count = mine.size();
      append_steps(steps, mine);
      staying.push_back(std::move(one));
    }
    active_ = std::move(staying);
    return steps;
  }

  Backend& backend_;
  const AnswerCallback& on_answer_;
  std::vector<Generation> answers_;
  std::vector<Active> active_;
  bool ended_ = false;
};

}  // namespace

Expected<std::vector<Generation>> generate_batch(
    Backend& backend, const Tokenizer* tokenizer, const std::vector<std::vector<TokenId>>& prompts,
    const ResolvedOptions& resolved, const LatencyTable* latency, std::int32_t batch, const AnswerCallback& on_answer,
    std::stop_token stop, PassRunner* second, std::span<const CommitSchedule> replays, const ConstraintPtr& constraint,
    std::span<const std::uint64_t> seeds) {
  std::deque<ResolvedOptions> own;  // sequences refer to theirs
  Batch rounds(backend, on_answer, prompts.size());
  std::size_t next = 0;
  while (!stop.stop_requested() && !rounds.ended()) {
    for (; next < prompts.size() && rounds.active() < static_cast<std::size_t>(batch); ++next) {
      if (!seeds.empty()) own.push_back(with_seed(resolved, seeds[next]));
      auto sequence = Sequence::start(backend, tokenizer, prompts[next], seeds.empty() ? resolved : own.back(), latency,
                                      second, {.constraint = constraint}, replays.empty() ? nullptr : &replays[next]);
      if (!sequence) return with_index(std::move(sequence).error(), next);
      rounds.join(next, *std::move(sequence));
    }
    if (rounds.active() == 0) break;
    DLLM_CHECK_OK(rounds.round());
  }
  return rounds.finish();
}

}  // namespace dllm
