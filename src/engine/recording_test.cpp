// Recordings: what is written can be read again, damaged files are refused with the place, and a replay commits as
// recorded.
#include "engine/recording.h"

#include <gtest/gtest.h>

#include <string>

#include "base/fuzz_replay.h"
#include "dllm/model.h"
#include "engine/recording_fuzz.h"

namespace dllm {
namespace {

constexpr const char* kQuestion =
    "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?";

const LanguageModel& embedded() {
  static const LanguageModel model = *LanguageModel::load("");
  return model;
}

GenerateOptions recorded_with(const std::string& name) {
  GenerateOptions options;
  options.preset = name;
  options.length = 64;
  options.block_length = 16;
  return options;
}

/// Any other prompt of this length gives other predictions.
Generation with_other_prompt(Generation answer) {
  for (std::size_t i = 0; i < answer.prompt_ids.size(); ++i)
    answer.prompt_ids[i] = static_cast<std::int32_t>(7 * i + 300) % 700;
  return answer;
}

std::string sample() {
  return R"({"format": "dllm-recording", "version": 1,
 "recorded": {"program": "dllm 1", "command": "dllm eval", "model": "m", "items": 2, "correct": 1},
 "length": 4, "block_length": 2, "options": {"preset": "balanced", "threshold": 0.5},
 "answers": [
  {"prompt_tokens": 3, "answer_tokens": 3, "finish": "stop", "nfe": 3, "rows_forwarded": 20, "rows_scored": 6,
   "commit_step": [0,0,2,-1]},
  {"prompt_tokens": 5, "answer_tokens": 4, "finish": "length", "nfe": 2, "rows_forwarded": 16, "rows_scored": 4,
   "commit_step": [0,0,1,1]}]})";
}

Expected<Recording> changed(const std::string& from, const std::string& to) {
  std::string text = sample();
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return parse_recording(text.replace(at, from.size(), to), "r.json");
}

TEST(Recording, IsReadAsWritten) {
  const auto one = parse_recording(sample(), "r.json");
  ASSERT_TRUE(one) << one.error().message();
  const auto two = parse_recording(recording_text(*one), "again");
  ASSERT_TRUE(two) << two.error().message();
  EXPECT_EQ(recording_text(*two), recording_text(*one));
  EXPECT_EQ(two->answers[0].commit_step, (std::vector<std::int32_t>{0, 0, 2, -1}));
  EXPECT_TRUE(two->answers[0].stops);
  EXPECT_EQ(two->answers[1].rows_forwarded, 16);
  EXPECT_EQ(two->correct, 1);
  EXPECT_EQ(two->replay_options(4).decoder.options.at("threshold"), OptionValue(0.5));
  EXPECT_EQ(two->replay_options(4).preset, "balanced");
}

TEST(Recording, RefusesDamageWithItsPlace) {
  struct Case {
    const char *from, *to, *place, *what;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"dllm-recording", "another", "r.json, format", "not dllm-recording"},
           {"\"version\": 1", "\"version\": 2", "r.json, version", "version 2"},
           {"\"length\": 4", "\"lenght\": 4", "r.json, length", "missing"},
           {"\"length\": 4", "\"length\": 4, \"seed\": 4", "r.json, seed", "unknown"},
           {"\"length\": 4", "\"length\": 5", "r.json, answers[0], commit_step", "5 passes"},
           {"\"block_length\": 2", "\"block_length\": 9", "r.json, block_length", "from 1 to 4"},
           {"\"correct\": 1", "\"correct\": 3", "r.json, recorded, correct", "from 0 to 2"},
           {"\"model\": \"m\"", "\"model\": 7", "r.json, recorded, model", "not a string"},
           {"threshold", "treshold", "r.json, options, treshold", "no method has such an option"},
           {"\"balanced\"", "\"quick\"", "r.json, options, preset", "unknown"},
           {"0.5", "[0.5]", "r.json, options, threshold", "not the value"},
           {"\"threshold\": 0.5", "\"seed\": 3", "r.json, options, seed", "no option of a recording"},
           {"\"threshold\": 0.5", "\"--threshold\": 0.5", "r.json, options, --threshold", "no option of a recording"},
           {"\"stop\"", "\"stopped\"", "r.json, answers[0], finish", "neither"},
           {"\"stop\"", "\"length\"", "r.json, answers[0], answer_tokens", "every position"},
           {"\"nfe\": 3", "\"nfe\": 2", "r.json, answers[0], commit_step[2]", "from -1 to 1"},
           {"\"nfe\": 3", "\"nfe\": 3.5", "r.json, answers[0], nfe", "not an integer"},
           {"[0,0,2,-1]", "[0,-1,2,-1]", "r.json, answers[0], commit_step[1]", "never committed"},
           {"\"rows_scored\": 4", "\"rows_scored\": 17", "r.json, answers[1], rows_scored", "from 1 to 16"},
           {"\"rows_scored\": 4", "\"rows_scored\": 99999999999999999999", "r.json, answers[1], rows_scored",
            "integer"},
           {"\"finish\": \"length\"", "\"finish\": \"length\", \"x\": 1", "r.json, answers[1], x", "unknown"}}) {
    const auto result = changed(c.from, c.to);
    ASSERT_FALSE(result) << c.to;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidFile) << c.to;
    EXPECT_EQ(result.error().where, c.place) << c.to;
    EXPECT_NE(result.error().what.find(c.what), std::string::npos) << result.error().message();
    EXPECT_FALSE(result.error().hint.empty()) << c.to;
  }
  EXPECT_FALSE(parse_recording("[]", "r.json"));
  EXPECT_FALSE(parse_recording(sample().substr(0, 300), "r.json"));
}

TEST(Recording, IsCutToWholeBlocks) {
  const Recording recording = *parse_recording(sample(), "r.json");
  EXPECT_EQ(recording.schedule(0, 4)->stop, 2);
  const CommitSchedule cut = *recording.schedule(0, 2);
  EXPECT_EQ(cut.pass_of, (std::vector<std::int32_t>{0, 0}));
  EXPECT_FALSE(cut.stop);
  EXPECT_FALSE(recording.schedule(0, 3));
  EXPECT_FALSE(recording.schedule(0, 6));
  const auto together = changed("[0,0,1,1]", "[0,1,0,1]");
  ASSERT_TRUE(together);
  EXPECT_TRUE(together->schedule(1, 4));
  EXPECT_FALSE(together->schedule(1, 2)) << "the second block begins before the first is done";
}

TEST(Recording, SpreadsOverTokensPerPass) {
  Recording recording = *parse_recording(sample(), "r.json");
  const RecordedAnswer one = recording.answers.back();
  recording.answers.clear();
  for (const std::int32_t nfe : {8, 2, 6, 4, 10}) {
    recording.answers.push_back(one);
    recording.answers.back().nfe = nfe;
  }
  EXPECT_EQ(recording.spread(1), (std::vector<std::size_t>{2})) << "4 tokens in 6 passes, as 20 in 30";
  EXPECT_EQ(recording.spread(9), (std::vector<std::size_t>{4, 0, 2, 3, 1})) << "from the slowest";
  const auto two = recording.spread(2);
  EXPECT_EQ(two, (std::vector<std::size_t>{0, 3}));
}

TEST(Replay, RepeatsItsOwnModel) {
  GenerateOptions dual = recorded_with("exact"), origin = recorded_with("exact"), steps = recorded_with("exact");
  dual.cache.name = "dual";
  dual.window.name = "sliding";
  origin.decoder = {"origin", {{"steps", std::int64_t{40}}}};
  steps.decoder = {"low-confidence", {{"steps", std::int64_t{16}}}};
  for (const GenerateOptions& options : {recorded_with("exact"), recorded_with("balanced"), dual, origin, steps}) {
    const auto answer = embedded().generate(kQuestion, options);
    ASSERT_TRUE(answer) << answer.error().message();
    const auto again = embedded().replay(*answer);
    ASSERT_TRUE(again) << answer->options.decoder.name << ": " << again.error().message();
    EXPECT_EQ(again->ids, answer->ids);
    EXPECT_EQ(again->finish, answer->finish);
  }
}

TEST(Replay, CommitsTheSameWhateverIsPredicted) {
  for (const char* name : {"exact", "balanced"}) {
    const Generation answer = *embedded().generate(kQuestion, recorded_with(name));
    ASSERT_EQ(answer.finish, FinishReason::kStop);
    const auto other = embedded().replay(with_other_prompt(answer));
    ASSERT_TRUE(other) << other.error().message();
    EXPECT_NE(other->ids, answer.ids) << "the same predictions would prove nothing";
    EXPECT_EQ(other->commit_step, answer.commit_step);
    EXPECT_EQ(other->stats.answer_tokens, answer.stats.answer_tokens);
    EXPECT_EQ(other->stats.nfe, answer.stats.nfe);
    EXPECT_EQ(other->stats.rows_forwarded, answer.stats.rows_forwarded);
    EXPECT_EQ(other->stats.rows_scored, answer.stats.rows_scored);
    EXPECT_EQ(other->finish, FinishReason::kStop);
  }
}

TEST(Replay, KeepsPassesThatCommitNothing) {
  GenerateOptions options = recorded_with("exact");
  options.exact_length = true;
  Generation answer = *embedded().generate(kQuestion, options);
  for (std::int32_t& pass : answer.commit_step) ++pass;
  answer.stats.nfe += 1;
  answer.stats.rows_forwarded += static_cast<std::int64_t>(answer.prompt_ids.size()) + 64;
  answer.stats.rows_scored += 16;
  const auto again = embedded().replay(answer);
  EXPECT_TRUE(again) << again.error().message();
}

TEST(Replay, RefusesWhatDoesNotFit) {
  const Generation answer = *embedded().generate(kQuestion, recorded_with("exact"));
  Generation early = answer;
  early.commit_step[16] = 0;  // of the second block, in the first pass
  const auto misfit = embedded().replay(early);
  ASSERT_FALSE(misfit);
  EXPECT_EQ(misfit.error().code, ErrorCode::kMismatch);
  Generation fewer = answer;
  fewer.stats.rows_forwarded -= 1;
  EXPECT_EQ(embedded().replay(fewer).error().code, ErrorCode::kMismatch);

  GenerateOptions guided = recorded_with("exact"), stopped = recorded_with("exact"), revising = recorded_with("fast");
  guided.cfg_scale = 0.5;
  stopped.stop = {"12"};
  for (const GenerateOptions& options : {guided, stopped, revising}) {
    const Generation other = *embedded().generate(kQuestion, options);
    const auto refused = embedded().replay(other);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kUsage) << refused.error().message();
  }
}

TEST(Recording, TakesFinishedAnswersOfOneShape) {
  Recording recording;
  const Generation answer = *embedded().generate(kQuestion, recorded_with("exact"));
  recording.options = recorded_with("exact");
  ASSERT_TRUE(add_answer(recording, answer));
  recording.items = 1;
  const auto read = parse_recording(recording_text(recording), "r.json");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->answers[0].commit_step, answer.commit_step);
  EXPECT_EQ(read->answers[0].nfe, answer.stats.nfe);
  GenerateOptions longer = recorded_with("exact");
  longer.length = 32;
  EXPECT_FALSE(add_answer(recording, *embedded().generate(kQuestion, longer)));
}

TEST(FuzzCorpus, Recording) { test::replay_corpus("recording", 100, fuzz_recording); }

}  // namespace
}  // namespace dllm
