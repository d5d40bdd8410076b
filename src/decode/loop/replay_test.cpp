// Replays of methods that revise tokens: whatever is predicted, the passes have the rows, the caches, the scored rows
// and the changes of the recorded answer.
#include <gtest/gtest.h>

#include <cmath>
#include <future>

#include "decode/decoder/replay_decoder.h"
#include "decode/testing/run_method.h"

namespace dllm {
namespace {

using test::FakeBackend;
using test::MethodRun;

constexpr TokenId kReplayMask = 99;

/// Two tokens end answers.
ModelDesc ending_desc() {
  ModelDesc desc = test::masked_desc();
  desc.stop_ids = {49, 48};
  return desc;
}

void doubtful(RowScore& score) {
  score.confidence = 0.5 + 0.49 * score.confidence;
  score.log_odds = std::log(score.confidence / (1 - score.confidence));
  if (score.position % 3 > 0) score.token %= 5;
}

/// Other tokens, and other confidences.
void opposite(RowScore& score) {
  score.confidence = 1 - score.confidence;
  score.log_odds = -score.log_odds;
  score.token = (7 * score.token + 3) % 50;
}

class ReplayRunner : public PassRunner {
 public:
  explicit ReplayRunner(FakeBackend& backend) : backend_(backend) {}
  std::future<Expected<std::vector<Scores>>> start(SequenceStep step) override {
    std::promise<Expected<std::vector<Scores>>> promise;
    promise.set_value(backend_.forward({&step, 1}));
    return promise.get_future();
  }
  void copy_rows(const KvCache& from, KvCache& to, std::span<const Position> rows) override {
    FakeBackend::copy_rows(from, to, rows);
  }

 private:
  FakeBackend& backend_;
};

struct Played {
  std::vector<StepPlan> plans;  ///< of both paths, in their order
  std::vector<PassRecord> passes;
  std::vector<TokenId> tokens;
  DenoiseCounters counters;
  std::optional<Position> stop;
};

/// `schedule`: what to replay; null: the method decides.
Played play(MethodRun run, void (*predictions)(RowScore&), const CommitSchedule* schedule = nullptr) {
  const ModelDesc desc = ending_desc();
  FakeBackend backend(desc);
  backend.tamper = predictions;
  ReplayRunner runner(backend);
  Canvas canvas = test::canvas_of(run, desc);
  Method method = test::method_of(run);
  if (schedule != nullptr) method.decoder = make_replay_decoder(std::move(method.decoder), *schedule, desc);
  auto cache = *backend.make_cache(canvas.size()), side = *backend.make_cache(canvas.size());
  run.options.stop_ids = desc.stop_ids;
  if (const auto delay = run.config.find("merge_delay"); delay != run.config.end())
    run.options.second = {&runner, side.get(), static_cast<std::int32_t>(std::get<std::int64_t>(delay->second)), false};
  Denoiser denoiser(desc, std::move(canvas), std::move(method), run.options, *cache, nullptr);
  Played played;
  for (auto batch = denoiser.prepare(); !batch.empty(); batch = denoiser.prepare()) {
    EXPECT_LT(denoiser.counters().nfe, 300);
    if (denoiser.counters().nfe >= 300) break;
    auto step = denoiser.absorb(*backend.forward(batch));
    EXPECT_TRUE(step);
    if (!step) break;
    if (step->record) played.passes.push_back(*step->record);
  }
  for (Position p = 0; p < denoiser.canvas().size(); ++p) played.tokens.push_back(denoiser.canvas().token(p));
  played.plans = backend.plans;
  played.counters = denoiser.counters();
  played.stop = denoiser.stop_position();
  return played;
}

void expect_same_work(const Played& replayed, const Played& recorded, const std::string& what) {
  EXPECT_EQ(replayed.counters.nfe, recorded.counters.nfe) << what;
  EXPECT_EQ(replayed.counters.second_passes, recorded.counters.second_passes) << what;
  EXPECT_EQ(replayed.stop, recorded.stop) << what;
  EXPECT_TRUE(replayed.passes == recorded.passes) << what;
  ASSERT_EQ(replayed.plans.size(), recorded.plans.size()) << what;
  for (std::size_t i = 0; i < recorded.plans.size(); ++i) {
    const StepPlan &ours = replayed.plans[i], &theirs = recorded.plans[i];
    ASSERT_EQ(ours.rows.size(), theirs.rows.size()) << what << ", plan " << i;
    for (std::size_t row = 0; row < ours.rows.size(); ++row) {
      EXPECT_EQ(ours.rows[row].position, theirs.rows[row].position) << what << ", plan " << i;
      EXPECT_EQ(ours.rows[row].token == kReplayMask, theirs.rows[row].token == kReplayMask) << what << ", plan " << i;
    }
    EXPECT_EQ(ours.scored, theirs.scored) << what << ", plan " << i;
    EXPECT_EQ(ours.visible, theirs.visible) << what << ", plan " << i;
  }
}

/// Records an answer and replays it with other predictions. Returns the recorded one.
Played replayed(const MethodRun& run, const std::string& what) {
  const Played recorded = play(run, doubtful);
  EXPECT_EQ(recorded.passes.size(), static_cast<std::size_t>(recorded.counters.nfe)) << what;
  const CommitSchedule schedule{.pass_of = {}, .passes = recorded.passes};
  const Played again = play(run, opposite, &schedule);
  EXPECT_NE(again.tokens, recorded.tokens) << "the same predictions would prove nothing";
  expect_same_work(again, recorded, what);
  return recorded;
}

MethodRun revising(const OptionMap& options, const std::string& cache, bool exact) {
  MethodRun run{.cache = cache, .decoder = "revision", .config = options};
  run.grid.length = 40;
  run.options.exact_length = exact;
  return run;
}

bool has(const Played& played, PassChange::Kind kind) {
  for (const PassRecord& pass : played.passes)
    for (const PassChange& change : pass.changes)
      if (change.kind == kind) return true;
  return false;
}

TEST(PassReplay, RepeatsRevision) {
  const OptionMap options[] = {
      {},
      {{"leave_one_out", true}, {"reopen", true}},
      {{"remask_visible", true}, {"remask_threshold", 0.7}},
      {{"drain_full", true}, {"drain_rows", std::int64_t{3}}, {"drain_rounds", std::int64_t{4}}},
      {{"refresh_rows", std::int64_t{0}}, {"drain_rounds", std::int64_t{0}}}};
  bool revised = false, masked_again = false, ended = false;
  for (std::size_t i = 0; i < std::size(options); ++i)
    for (const char* cache : {"none", "prefix", "dual", "vicinity"})
      for (const bool exact : {true, false}) {
        const std::string what = std::to_string(i) + " " + cache + (exact ? " exact" : "");
        const Played recorded = replayed(revising(options[i], cache, exact), what);
        revised = revised || has(recorded, PassChange::Kind::kRevise);
        masked_again = masked_again || has(recorded, PassChange::Kind::kRemask);
        ended = ended || (!exact && recorded.stop);
      }
  EXPECT_TRUE(revised && masked_again && ended);
}

TEST(PassReplay, RepeatsTheSecondPath) {
  bool merged = false;
  for (const std::int64_t delay : {0, 1, 2})
    for (const bool hidden : {false, true}) {
      const OptionMap options = {{"refresh_path", std::string("second")},
                                 {"refresh_rows", std::int64_t{3}},
                                 {"merge_delay", delay},
                                 {"leave_one_out", hidden}};
      const Played recorded =
          replayed(revising(options, "dual", true), "delay " + std::to_string(delay) + (hidden ? " hidden" : ""));
      EXPECT_GT(recorded.counters.second_passes, 0);
      for (const PassRecord& pass : recorded.passes) merged = merged || !pass.merged.empty();
    }
  EXPECT_TRUE(merged);
}

TEST(PassReplay, RepeatsDraftsAndOtherDecoders) {
  for (const char* acceptance : {"recheck", "instant"})
    for (const char* decoder : {"revision", "draft-edit", "threshold"}) {
      MethodRun run = revising({{"threshold", 0.9}, {"edit_threshold", 0.8}}, "dual", true);
      run.decoder = decoder;
      run.window = "lookahead";
      run.window_config = {{"draft_acceptance", std::string(acceptance)},
                           {"draft_threshold", 0.6},
                           {"lookahead_masks", std::int64_t{5}}};
      if (run.decoder == "threshold" && run.window_config["draft_acceptance"] == OptionValue(std::string("recheck")))
        continue;  // told by its commits
      replayed(run, std::string(acceptance) + " " + decoder);
    }
  for (const char* window : {"sliding", "whole"}) {
    MethodRun run = revising({}, "dual", false);
    run.window = window;
    replayed(run, window);
  }
  MethodRun remasking = revising({{"remask_threshold", 0.7}}, "dual", true);
  remasking.decoder = "hierarchical-remask";
  replayed(remasking, "hierarchical-remask");
}

/// Commits alone tell what a method does whose drafts are checked again.
TEST(ReplayDecoder, CommitsRecheckedDrafts) {
  MethodRun run = revising({{"threshold", 0.9}}, "dual", true);
  run.decoder = "threshold";
  run.window = "lookahead";
  run.window_config = {{"draft_threshold", 0.6}, {"lookahead_masks", std::int64_t{5}}};
  const test::MethodResult result = [&] {
    FakeBackend backend(ending_desc());
    backend.tamper = doubtful;
    return test::run_method(backend, run);
  }();
  ASSERT_TRUE(result.finished);
  const CommitSchedule schedule{.pass_of = result.commit_pass};
  const Played again = play(run, opposite, &schedule);
  EXPECT_TRUE(again.passes.empty());
  EXPECT_EQ(again.counters.nfe, result.counters.nfe);
  EXPECT_EQ(again.counters.rows_forwarded, result.counters.rows_forwarded);
  EXPECT_EQ(again.counters.rows_scored, result.counters.rows_scored);
}

/// Records that do not fit end all the same, and without a change that the canvas does not allow.
TEST(PassReplay, EndsWithRecordsThatDoNotFit) {
  const MethodRun run =
      revising({{"refresh_path", std::string("second")}, {"merge_delay", std::int64_t{1}}}, "dual", true);
  const Played recorded = play(run, doubtful);
  using Kind = PassChange::Kind;
  for (const Kind kind : {Kind::kCommit, Kind::kRevise, Kind::kRemask}) {
    std::vector<PassRecord> passes = recorded.passes;
    for (PassRecord& pass : passes) {
      for (PassChange& change : pass.changes) change.kind = kind;
      pass.merged = pass.changes;
      pass.reviewed = pass.refreshed = {0, 1, 2, 30, 39, 4000};
      pass.held = true;
    }
    const CommitSchedule schedule{.pass_of = {}, .passes = passes};
    const Played again = play(run, opposite, &schedule);
    EXPECT_FALSE(again.passes == recorded.passes);
    EXPECT_GE(again.counters.nfe, 1);
  }
  const CommitSchedule none{.pass_of = {}, .passes = {PassRecord{}}};
  EXPECT_GT(play(run, opposite, &none).counters.nfe, 1);
}

/// What was recorded of decoders that move tokens cannot be repeated, and nothing is handed out.
TEST(PassRecorder, StopsWhereTokensMove) {
  PassRecorder recorder(true, {});
  const Canvas canvas({1, 2}, 4, kReplayMask);
  DenoisePass pass;
  recorder.begin(canvas, pass, {2, 6});
  recorder.change(std::vector<Edit>{{.position = 2, .token = 5}});
  EXPECT_EQ(recorder.end(3)->settled, 1);
  recorder.begin(canvas, pass, {2, 6});
  recorder.change(std::vector<Edit>{{.position = 2, .kind = EditKind::kInsert, .end = 6}});
  EXPECT_FALSE(recorder.end(3));
  recorder.begin(canvas, pass, {2, 6});
  EXPECT_FALSE(recorder.end(3));
}

}  // namespace
}  // namespace dllm
