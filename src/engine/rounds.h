#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "dllm/error.h"
#include "engine/sequence.h"

namespace dllm {

/// One of the answers that share forward passes.
struct RoundJob {
  std::unique_ptr<Sequence> sequence{};
  double seconds = 0;                ///< of its passes: its share, and what its own steps took to plan and to decide
  std::size_t first = 0, count = 0;  ///< its steps in the pass's batch
};

/// What one pass did.
struct RoundWork {
  std::uint64_t nfe = 0;  ///< forward passes of single sequences
  std::uint64_t rows = 0;
  double seconds = 0;              ///< what it added to the jobs' seconds
  std::optional<Error> failure{};  ///< of the pass; the answers are where they were before it
};

/// The driver of all answers. A round is one forward pass of all running sequences, each at its own step; answers leave
/// and join between passes. Prompts of different lengths need no padding, because rows carry their positions and every
/// sequence has its own cache. No sequence's results depend on the others of its pass.
///
/// `Job` is a RoundJob with what its owner wants to know of it.
template <class Job>
class Rounds {
 public:
  /// Decides who joins, and what becomes of answers. Jobs that end or fail have left running() when the call returns.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual std::optional<Job> next() = 0;  ///< an answer that has started; nullopt: none is to join
    virtual void ended(Job& job) = 0;       ///< it has no further step
    virtual void failed(Job& job, Error error) = 0;
    virtual void stepped(Job& job, const DenoiseStep& step) = 0;
    /// A decoder or a callback of a user threw: the job has left, and the others go on.
    virtual void threw(Job& job, std::exception_ptr thrown) = 0;
  };

  /// At most `most` answers at a time. `owner` is borrowed.
  Rounds(std::size_t most, Owner& owner) : most_(most), owner_(owner) {}

  std::vector<Job>& running() { return running_; }

  /// The steps of the next pass. Answers that have ended leave, and others take their places in the same pass. Empty:
  /// nothing is left to do.
  std::vector<SequenceStep> gather() {
    std::vector<SequenceStep> steps;
    std::vector<Job> asked;  // running_ holds those that have not been asked in this round
    do {
      for (Job& job : running_) prepare(job, steps, asked);
      running_.clear();
      while (asked.size() + running_.size() < most_) {
        std::optional<Job> job = owner_.next();
        if (!job) break;
        running_.push_back(*std::move(job));
      }
    } while (!running_.empty());
    running_ = std::move(asked);
    return steps;
  }

  /// The pass of gather()'s steps, which are not empty.
  RoundWork forward(Backend& backend, const std::vector<SequenceStep>& steps) {
    RoundWork work;
    const auto begin = Clock::now();
    auto scores = backend.forward(steps);
    const double pass = since(begin);
    work.seconds = std::exchange(planned_, 0) + pass;
    for (const SequenceStep& step : steps) work.rows += static_cast<std::uint64_t>(step.plan.row_count());
    for (Job& job : running_) {
      work.nfe += job.count;
      job.seconds += pass / static_cast<double>(running_.size());
    }
    if (!scores) {
      work.failure = std::move(scores).error();
      return work;
    }
    std::vector<Job> staying;
    for (Job& job : running_) {
      const auto start = Clock::now();
      const bool stays = guarded(job, [&] { return absorb(job, *scores); });
      const double decided = since(start);
      job.seconds += decided;
      work.seconds += decided;
      if (stays) staying.push_back(std::move(job));
    }
    running_ = std::move(staying);
    return work;
  }

 private:
  /// False if it throws.
  template <class Work>
  bool guarded(Job& job, const Work& work) {
    try {
      return work();
    } catch (...) {
      owner_.threw(job, std::current_exception());
      return false;
    }
  }

  bool absorb(Job& job, const std::vector<Scores>& scores) {
    const auto step = job.sequence->absorb(std::span(scores).subspan(job.first, job.count));
    if (step)
      owner_.stepped(job, *step);
    else
      owner_.failed(job, step.error());
    return step.has_value();
  }

  using Clock = std::chrono::steady_clock;
  static double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

  /// Whether it has a further step, which `steps` gets.
  bool ask(Job& job, std::vector<SequenceStep>& steps) {
    const auto mine = job.sequence->prepare();
    if (!mine) {
      owner_.failed(job, mine.error());
      return false;
    }
    if (mine->empty()) {
      owner_.ended(job);
      return false;
    }
    job.first = steps.size();
    job.count = mine->size();
    append_steps(steps, *mine);
    return true;
  }

  void prepare(Job& job, std::vector<SequenceStep>& steps, std::vector<Job>& asked) {
    const auto begin = Clock::now();
    if (!guarded(job, [&] { return ask(job, steps); })) return;
    const double planned = since(begin);
    planned_ += planned;
    job.seconds += planned;
    asked.push_back(std::move(job));
  }

  const std::size_t most_;
  Owner& owner_;
  std::vector<Job> running_;
  double planned_ = 0;  ///< seconds of the steps that wait for their pass
};

}  // namespace dllm
