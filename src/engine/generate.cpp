#include "engine/generate.h"

#include <fmt/format.h>

#include <deque>
#include <exception>
#include <optional>
#include <utility>

#include "base/hash.h"
#include "base/to_size.h"
#include "engine/rounds.h"

namespace dllm {
namespace {

struct BatchJob : RoundJob {
  std::size_t index = 0;  ///< of the request
};

ResolvedOptions with_seed(ResolvedOptions options, std::uint64_t seed) {
  options.seed = seed;
  for (auto& [key, value] : options.values)
    if (key == "seed") value = OptionValue(seed);
  return options;
}

/// Requests of one set of options, in their order.
class Batch final : Rounds<BatchJob>::Owner {
 public:
  Batch(const AnswerHost& host, std::span<const std::vector<TokenId>> prompts, const ResolvedOptions& resolved,
        const BatchCall& call, const GenerateCall* single = nullptr)
      : host_(host),
        prompts_(prompts),
        resolved_(resolved),
        call_(call),
        single_(single),
        answers_(prompts.size()),
        rounds_(to_size(call.batch), *this) {
    for (Generation& answer : answers_) answer.finish = FinishReason::kCancelled;
  }

  std::optional<std::size_t> failed_request() const { return failed_; }

  Expected<std::vector<Generation>> run() {
    // A single answer says what was asked even if it is stopped at once.
    if (single_ != nullptr)
      if (auto job = next()) rounds_.running().push_back(*std::move(job));
    while (!stopped()) {
      const std::vector<SequenceStep> steps = rounds_.gather();
      if (steps.empty() || stopped()) break;
      if (RoundWork work = rounds_.forward(host_.backend, steps); work.failure) return *std::move(work.failure);
    }
    if (thrown_) std::rethrow_exception(thrown_);
    if (error_) return *std::move(error_);
    for (BatchJob& job : rounds_.running()) answers_[job.index] = job.sequence->finish(/*cancelled=*/true, job.seconds);
    return std::move(answers_);
  }

 private:
  bool stopped() const { return ended_ || error_ || thrown_ || call_.stop.stop_requested(); }

  std::optional<BatchJob> next() override {
    if (next_ == prompts_.size() || ended_ || error_ || thrown_) return std::nullopt;
    if (single_ == nullptr && call_.stop.stop_requested()) return std::nullopt;
    BatchJob job;
    job.index = next_++;
    const bool own = !call_.seeds.empty();
    if (own) options_.push_back(with_seed(resolved_, call_.seeds[job.index]));
    Given given{.constraint = call_.constraint};
    if (!call_.images.empty()) given.images = call_.images[job.index];
    auto sequence = Sequence::start(host_, prompts_[job.index], own ? options_.back() : resolved_, given,
                                    call_.replays.empty() ? nullptr : &call_.replays[job.index]);
    if (!sequence) {
      failed(job, std::move(sequence).error());
      return std::nullopt;
    }
    job.sequence = *std::move(sequence);
    return job;
  }

  void ended(BatchJob& job) override {
    answers_[job.index] = job.sequence->finish(/*cancelled=*/false, job.seconds);
    if (call_.on_answer && !call_.on_answer(job.index, answers_[job.index])) ended_ = true;
  }

  void failed(BatchJob& job, Error error) override {
    if (error_) return;
    error_ = std::move(error);
    failed_ = job.index;
  }

  void stepped(BatchJob& job, const DenoiseStep& step) override {
    if (single_ == nullptr) return;
    if (single_->on_settled) single_->on_settled(job.sequence->settled());
    if (single_->on_step && !single_->on_step(job.sequence->event(step))) ended_ = true;
  }

  /// The caller gets it, after the passes: an exception of Python has its own type.
  void threw(BatchJob&, std::exception_ptr thrown) override {
    if (!thrown_) thrown_ = std::move(thrown);
  }

  const AnswerHost host_;
  const std::span<const std::vector<TokenId>> prompts_;
  const ResolvedOptions& resolved_;
  const BatchCall& call_;
  const GenerateCall* const single_;     ///< null: there may be many
  std::deque<ResolvedOptions> options_;  ///< with seeds of their own; sequences refer to them
  std::vector<Generation> answers_;
  Rounds<BatchJob> rounds_;
  std::size_t next_ = 0;
  bool ended_ = false;  ///< by a callback
  std::optional<Error> error_;
  std::exception_ptr thrown_;
  std::optional<std::size_t> failed_;  ///< the request of `error_`
};

}  // namespace

std::uint64_t hash_ids(const std::vector<TokenId>& ids) {
  Fnv1a hash;
  for (const TokenId id : ids) hash.add_word(static_cast<std::uint32_t>(id));
  return hash.value();
}

Expected<Generation> generate(const AnswerHost& host, const std::vector<TokenId>& prompt,
                              const ResolvedOptions& resolved, const GenerateCall& call) {
  BatchCall one{.stop = call.stop, .constraint = call.constraint};
  if (call.replay != nullptr) one.replays = {call.replay, 1};
  if (call.images != nullptr) one.images = {&call.images, 1};
  Batch batch(host, {&prompt, 1}, resolved, one, &call);
  auto answers = batch.run();
  if (!answers) return std::move(answers).error();
  return std::move(answers->front());
}

Expected<std::vector<Generation>> generate_batch(const AnswerHost& host,
                                                 const std::vector<std::vector<TokenId>>& prompts,
                                                 const ResolvedOptions& resolved, const BatchCall& call) {
  Batch batch(host, prompts, resolved, call);
  auto answers = batch.run();
  if (answers || !batch.failed_request()) return answers;
  Error error = std::move(answers).error();
  error.where = fmt::format("request {}{}{}", *batch.failed_request(), error.where.empty() ? "" : ", ", error.where);
  return error;
}

}  // namespace dllm
