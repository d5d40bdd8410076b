// The second path of revision: concurrent refreshes, merged later, against a straightforward reference.
#include "decode/loop/second_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <thread>

#include "decode/testing/run_method.h"

namespace dllm {
namespace {

using test::FakeBackend;
using test::masked_desc;
using test::MethodRun;

enum class When { kAtOnce, kThread, kHeld };

/// Runs passes on a backend of its own.
class FakeRunner : public PassRunner {
 public:
  explicit FakeRunner(When when = When::kAtOnce) : backend(masked_desc()), when_(when) {}
  ~FakeRunner() override {
    for (std::thread& thread : threads_) thread.join();
  }

  std::future<Expected<std::vector<Scores>>> start(SequenceStep step) override {
    ++started;
    std::promise<Expected<std::vector<Scores>>> promise;
    auto future = promise.get_future();
    if (when_ == When::kThread) {
      threads_.emplace_back([this, step = std::move(step), promise = std::move(promise)]() mutable {
        std::this_thread::sleep_for(std::chrono::microseconds(threads_started_++ % 3 * 200));
        promise.set_value(backend.forward({&step, 1}));
      });
    } else {
      auto scores = backend.forward({&step, 1});
      if (when_ == When::kHeld) {
        held_.emplace_back(std::move(promise), std::move(scores));
      } else {
        promise.set_value(std::move(scores));
      }
    }
    return future;
  }

  void copy_rows(const KvCache& from, KvCache& to, std::span<const Position> rows) override {
    FakeBackend::copy_rows(from, to, rows);
  }

  void release() {
    for (auto& [promise, scores] : held_) promise.set_value(std::move(scores));
    held_.clear();
  }

  FakeBackend backend;
  int started = 0;

 private:
  When when_;
  std::vector<std::thread> threads_;
  int threads_started_ = 0;  ///< one pass runs at a time
  std::vector<std::pair<std::promise<Expected<std::vector<Scores>>>, Expected<std::vector<Scores>>>> held_;
};

/// Tokens of medium confidence, so that much is reviewed.
void hesitant(RowScore& score) {
  score.confidence = 0.55 + 0.4 * score.confidence;
  score.log_odds = std::log(score.confidence / (1 - score.confidence));
  score.token %= 5;
}

MethodRun run_of(std::int32_t rows = 3) {
  MethodRun run{.cache = "dual", .decoder = "revision"};
  run.config["refresh_path"] = "second";
  run.config["refresh_rows"] = rows;
  run.config["drain_rounds"] = 0;
  run.config["max_revisions"] = 2;
  run.grid.length = 32;
  return run;
}

struct Outcome {
  std::vector<TokenId> tokens;
  DenoiseCounters counters;
  bool finished = false;
  int revised = 0;
  friend bool operator==(const Outcome& a, const Outcome& b) {
    return a.tokens == b.tokens && a.counters.nfe == b.counters.nfe &&
           a.counters.second_passes == b.counters.second_passes && a.counters.rows_scored == b.counters.rows_scored;
  }
};

/// The loop with a second path; `release`: held passes become ready after that many dense ones.
Outcome run_second(MethodRun run, FakeRunner& runner, std::int32_t delay, bool when_ready = false, int release = 0,
                   std::uint64_t salt = 0) {
  FakeBackend backend(masked_desc());
  backend.tamper = runner.backend.tamper = hesitant;
  run.prompt = static_cast<Position>(5 + salt);
  Canvas canvas = canvas_of(run, backend.desc());
  auto cache = *backend.make_cache(canvas.size()), side = *backend.make_cache(canvas.size());
  run.options.second = {&runner, side.get(), delay, when_ready};
  Denoiser denoiser(backend.desc(), std::move(canvas), test::method_of(run), run.options, *cache, nullptr);
  Outcome outcome;
  for (auto batch = denoiser.prepare(); !batch.empty(); batch = denoiser.prepare()) {
    if (denoiser.counters().nfe > 300) return outcome;
    const auto scores = *backend.forward(batch);
    // At the end the loop waits, so nothing may be held then.
    if (release > 0 && (denoiser.counters().nfe % release == 0 || denoiser.canvas().masked_count() < 6))
      runner.release();
    const auto step = denoiser.absorb(scores);
    if (!step) return outcome;
    for (const Edit& edit : step->edits) outcome.revised += edit.position < step->window.begin ? 1 : 0;
  }
  for (Position p = 0; p < denoiser.canvas().size(); ++p) outcome.tokens.push_back(denoiser.canvas().token(p));
  outcome.counters = denoiser.counters();
  outcome.finished = true;
  return outcome;
}

/// Revision with block window, dual cache and second path, reimplemented: every launch works on a whole copy of the
/// cache. With delay 0 there is no copy: the refresh is an ordinary pass before the dense one.
class Reference {
 public:
  Reference(const MethodRun& run, std::int32_t delay, std::uint64_t salt)
      : run_(run), delay_(delay), prompt_(static_cast<Position>(5 + salt)), backend_(masked_desc()) {
    backend_.tamper = hesitant;
    size_ = prompt_ + run.grid.length;
    main_ = *backend_.make_cache(size_);
    for (Position p = 0; p < size_; ++p) cells_.push_back({p < prompt_ ? p + 1 : 99, p < prompt_ ? kFinal : kHidden});
  }

  Outcome run() {
    Outcome outcome;
    for (; has_hidden(); ++passes_) {
      const Position first = hidden_from();
      const Position begin = prompt_ + (first - prompt_) / 8 * 8;
      launch(begin);
      if (delay_ == 0) merge();
      dense(begin, std::min<Position>(begin + 8, size_));
      if (job_ && (passes_ + 1 - job_->at >= delay_ || !has_hidden())) merge();
    }
    for (const Cell& cell : cells_) outcome.tokens.push_back(cell.token);
    outcome.counters = counters_;
    outcome.finished = true;
    return outcome;
  }

 private:
  enum State { kHidden, kVisible, kFinal };
  struct Cell {
    TokenId token;
    State state;
    double confidence = 0;
    int revisions = 0;
    int looked = 0;
    bool dirty = false;
    int written = -1;  ///< pass that last wrote its K/V
  };
  struct Job {
    int at;
    std::vector<Position> rows;
    std::vector<Cell> before;
    Scores scores;
    std::unique_ptr<KvCache> cache;
  };

  bool has_hidden() const { return hidden_from() < size_; }
  Position hidden_from() const {
    Position p = 0;
    while (p < size_ && cells_[static_cast<std::size_t>(p)].state != kHidden) ++p;
    return p;
  }
  Cell& at(Position p) { return cells_[static_cast<std::size_t>(p)]; }

  Scores forward(KvCache& cache, const std::vector<Position>& rows, const std::vector<Position>& scored) {
    SequenceStep step{&cache, {}, {}, std::nullopt};
    for (Position p : rows) step.plan.rows.push_back({p, at(p).token});
    step.plan.visible = {{0, size_}};
    for (std::size_t i = 0; i < scored.size(); ++i) {
      const auto row = std::find(rows.begin(), rows.end(), scored[i]) - rows.begin();
      step.plan.scored.push_back(static_cast<std::int32_t>(row));
      if (at(scored[i]).state == kVisible)
        step.request.queries.push_back({static_cast<std::int32_t>(i), at(scored[i]).token});
    }
    counters_.rows_scored += static_cast<std::int64_t>(scored.size());
    return (*backend_.forward({&step, 1})).front();
  }

  void launch(Position begin) {
    if (job_) return;
    std::vector<Position> behind;
    for (Position p = 0; p < begin; ++p)
      if (at(p).state == kVisible) behind.push_back(p);
    std::stable_sort(behind.begin(), behind.end(), [&](Position a, Position b) {
      return std::make_tuple(!at(a).dirty, at(a).looked, at(a).confidence) <
             std::make_tuple(!at(b).dirty, at(b).looked, at(b).confidence);
    });
    const auto most = static_cast<std::size_t>(test::integer(run_.config, "refresh_rows"));
    if (behind.size() > most) behind.resize(most);
    if (behind.empty()) return;
    std::sort(behind.begin(), behind.end());
    Job job{passes_, behind, cells_, {}, nullptr};
    if (delay_ == 0) {
      job.scores = forward(*main_, behind, behind);
    } else {
      std::vector<Position> all;
      for (Position p = 0; p < size_; ++p) all.push_back(p);
      job.cache = *backend_.make_cache(size_);
      FakeBackend::copy_rows(*main_, *job.cache, all);
      job.scores = forward(*job.cache, behind, behind);
    }
    job_ = std::move(job);
  }

  void merge() {
    if (!job_) return;
    ++counters_.second_passes;
    std::vector<Position> rows;
    for (std::size_t i = 0; i < job_->rows.size(); ++i) {
      const Position p = job_->rows[i];
      const Cell& then = job_->before[static_cast<std::size_t>(p)];
      if (at(p).token != then.token) continue;
      if (at(p).written == then.written) rows.push_back(p);
      judge(at(p), job_->scores.rows[i], job_->scores.queried[i]);
    }
    if (job_->cache) FakeBackend::copy_rows(*job_->cache, *main_, rows);
    job_.reset();
  }

  void judge(Cell& cell, const RowScore& score, float own_logit) {
    cell.looked = counters_.nfe;
    cell.dirty = false;
    const double own = score.confidence * std::exp(static_cast<double>(own_logit) - static_cast<double>(score.logit));
    if (score.token != cell.token && score.confidence >= .7 && score.confidence > own &&
        cell.revisions < test::integer(run_.config, "max_revisions")) {
      cell = {score.token, kVisible, score.confidence, cell.revisions + 1, counters_.nfe, true, cell.written};
      return;
    }
    cell.confidence = own;
    if (own >= .9) cell.state = kFinal;
  }

  void dense(Position begin, Position end) {
    std::vector<Position> rows, scored;
    for (Position p = 0; p < size_; ++p) {
      const bool stale = p < begin && main_->token_of(p) != at(p).token;
      if (begin != block_ || stale || (p >= begin && p < end)) rows.push_back(p);
      if (p >= begin && p < end && at(p).state != kFinal) scored.push_back(p);
    }
    block_ = begin;
    const Scores scores = forward(*main_, rows, scored);
    for (Position p : rows) at(p).written = passes_;
    ++counters_.nfe;
    std::size_t query = 0;
    Position best = -1;
    const RowScore* surest = nullptr;
    bool promoted = false;
    for (std::size_t i = 0; i < scored.size(); ++i) {
      Cell& cell = at(scored[i]);
      const RowScore& score = scores.rows[i];
      if (cell.state == kVisible) {
        judge(cell, score, scores.queried[query++]);
        continue;
      }
      if (!surest || score.log_odds > surest->log_odds) surest = &score, best = scored[i];
      if (score.confidence < .7) continue;
      show(cell, score);
      promoted = true;
    }
    if (!promoted && surest) show(at(best), *surest);
  }

  void show(Cell& cell, const RowScore& score) {
    cell = {score.token, score.confidence >= .9 ? kFinal : kVisible, score.confidence, 0, counters_.nfe, true,
            cell.written};
  }

  MethodRun run_;
  std::int32_t delay_;
  Position prompt_, size_ = 0, block_ = -1;
  FakeBackend backend_;
  std::unique_ptr<KvCache> main_;
  std::vector<Cell> cells_;
  std::optional<Job> job_;
  int passes_ = 0;
  DenoiseCounters counters_;
};

TEST(SecondPath, EqualsTheReferenceAtEveryDelay) {
  int revised = 0, passes = 0;
  for (const std::int32_t delay : {0, 1, 2, 3, 5, 100})
    for (const std::int32_t rows : {1, 3, 100})
      for (std::uint64_t salt = 0; salt < 8; ++salt) {
        SCOPED_TRACE(std::to_string(delay) + ' ' + std::to_string(rows) + ' ' + std::to_string(salt));
        FakeRunner runner;
        const Outcome ours = run_second(run_of(rows), runner, delay, false, 0, salt);
        ASSERT_TRUE(ours.finished);
        EXPECT_EQ(ours, Reference(run_of(rows), delay, salt).run());
        revised += ours.revised;
        passes += ours.counters.second_passes;
      }
  EXPECT_GT(revised, 30);
  EXPECT_GT(passes, 100);
}

TEST(SecondPath, WithAFixedDelayItDoesNotMatterWhenAPassIsDone) {
  for (const std::int32_t delay : {0, 1, 3})
    for (std::uint64_t salt = 0; salt < 4; ++salt) {
      FakeRunner at_once, thread(When::kThread);
      EXPECT_EQ(run_second(run_of(), at_once, delay, false, 0, salt),
                run_second(run_of(), thread, delay, false, 0, salt));
    }
}

TEST(SecondPath, MergedWhenReady) {
  for (std::uint64_t salt = 0; salt < 4; ++salt) {
    FakeRunner fixed, ready;
    const Outcome one = run_second(run_of(), fixed, 1, false, 0, salt);
    EXPECT_EQ(run_second(run_of(), ready, 7, true, 0, salt), one) << "ready at once: at the next boundary";
    FakeRunner held(When::kHeld);
    const Outcome late = run_second(run_of(), held, 7, true, 4, salt);
    ASSERT_TRUE(late.finished);
    EXPECT_GT(late.counters.second_passes, 0);
    EXPECT_LT(late.counters.second_passes, one.counters.second_passes);
    FakeRunner thread(When::kThread);
    EXPECT_TRUE(run_second(run_of(), thread, 1, true, 0, salt).finished);
  }
}

TEST(SecondPath, WithoutRowsItIsTheFoldedPath) {
  FakeRunner runner;
  const Outcome second = run_second(run_of(0), runner, 1);
  EXPECT_EQ(runner.started, 0);
  MethodRun folded = run_of(0);
  folded.config["refresh_path"] = "folded";
  EXPECT_EQ(second, run_second(folded, runner, 1));
}

TEST(SecondPath, EndsUnderEveryWindowAndCache) {
  for (const auto& window : method_names(windows()))
    for (const auto& cache : test::names_for(caches(), masked_desc()))
      for (const std::int32_t delay : {0, 1, 4})
        for (const bool left_out : {false, true}) {
          SCOPED_TRACE(window + ' ' + cache + ' ' + std::to_string(delay));
          FakeRunner runner;
          MethodRun run = run_of();
          run.window = window;
          run.cache = cache;
          run.config["leave_one_out"] = left_out;
          run.config["drain_rounds"] = 2;
          run.config["refresh_sees"] = delay != 4 ? "all" : "prefix";
          EXPECT_TRUE(run_second(run, runner, delay).finished);
        }
}

TEST(SecondPath, APassUnderWayIsWaitedForWhenTheSequenceGoes) {
  FakeRunner runner(When::kThread);
  FakeBackend backend(masked_desc());
  backend.tamper = runner.backend.tamper = hesitant;
  MethodRun run = run_of();
  Canvas canvas = canvas_of(run, backend.desc());
  auto cache = *backend.make_cache(canvas.size()), side = *backend.make_cache(canvas.size());
  run.options.second = {&runner, side.get(), 100, false};
  {
    Denoiser denoiser(backend.desc(), std::move(canvas), test::method_of(run), run.options, *cache, nullptr);
    while (runner.started == 0) {
      const auto batch = denoiser.prepare();
      ASSERT_FALSE(batch.empty());
      ASSERT_TRUE(denoiser.absorb(*backend.forward(batch)));
    }
  }
  side.reset();  // nothing writes there any more
}

}  // namespace
}  // namespace dllm
