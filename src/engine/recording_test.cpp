// Recordings: what is written can be read again, damaged files are refused with the place, and a replay commits as
// recorded.
#include "engine/recording.h"

#include <gtest/gtest.h>

#include <string>

#include "base/testing/fuzz_replay.h"
#include "dllm/model.h"
#include "engine/testing/recording_fuzz.h"

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
           {"\"version\": 1", "\"version\": 3", "r.json, version", "version 3"},
           {"\"version\": 1", "\"version\": 2", "r.json, answers[0], passes", "no 'passes'"},
           {"\"length\": 4", "\"lenght\": 4", "r.json, length", "no 'length'"},
           {"\"length\": 4", "\"length\": 4, \"seed\": 4", "r.json, seed", "unknown"},
           {"\"length\": 4", "\"length\": 5", "r.json, answers[0], commit_step", "5 passes"},
           {"\"block_length\": 2", "\"block_length\": 9", "r.json, block_length", "from 1 to 4"},
           {"\"correct\": 1", "\"correct\": 3", "r.json, recorded, correct", "from 0 to 2"},
           {"\"model\": \"m\"", "\"model\": 7", "r.json, recorded, model", "must be a string"},
           {"threshold", "treshold", "r.json, options, treshold", "no method has such an option"},
           {"\"balanced\"", "\"quick\"", "r.json, options, preset", "unknown"},
           {"0.5", "[0.5]", "r.json, options, threshold", "not the value"},
           {"\"threshold\": 0.5", "\"seed\": 3", "r.json, options, seed", "no option of a recording"},
           {"\"threshold\": 0.5", "\"--threshold\": 0.5", "r.json, options, --threshold", "no option of a recording"},
           {"\"stop\"", "\"stopped\"", "r.json, answers[0], finish", "neither"},
           {"\"stop\"", "\"length\"", "r.json, answers[0], answer_tokens", "every position"},
           {"\"nfe\": 3", "\"nfe\": 2", "r.json, answers[0], commit_step[2]", "from -1 to 1"},
           {"\"nfe\": 3", "\"nfe\": 3.5", "r.json, answers[0], nfe", "must be an integer"},
           {"[0,0,2,-1]", "[0,-1,2,-1]", "r.json, answers[0], commit_step[1]", "never committed"},
           {"\"rows_scored\": 4", "\"rows_scored\": 17", "r.json, answers[1], rows_scored", "from 1 to 16"},
           {"\"rows_scored\": 4", "\"rows_scored\": 99999999999999999999", "r.json, answers[1], rows_scored",
            "integer"},
           {"\"finish\": \"length\"", "\"finish\": \"length\", \"x\": 1", "r.json, answers[1], x", "unknown"}}) {
    const auto result = changed(c.from, c.to);
    ASSERT_FALSE(result) << c.to;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidFile) << c.to;
    EXPECT_EQ(result.error().where, c.place) << c.to;
    EXPECT_NE(result.error().message().find(c.what), std::string::npos) << result.error().message();
    EXPECT_FALSE(result.error().hint.empty()) << c.to;
  }
  EXPECT_FALSE(parse_recording("[]", "r.json"));
  EXPECT_FALSE(parse_recording(sample().substr(0, 300), "r.json"));
}

/// An answer whose third pass reviews two tokens, revises one, and merges what the second path found.
std::string revised_sample() {
  return R"({"format": "dllm-recording", "version": 2,
 "recorded": {"program": "dllm 1", "command": "dllm eval", "model": "m", "items": 1, "correct": 1},
 "length": 8, "block_length": 4, "options": {"preset": "fast"},
 "answers": [
  {"prompt_tokens": 3, "answer_tokens": 6, "finish": "stop", "nfe": 4, "rows_forwarded": 20, "rows_scored": 6,
   "passes": [{"commit": "0-3"}, {"commit": "4,5", "ends": "5", "refresh": "1", "settled": 1},
    {"review": "4,5", "commit": "6,7", "revise": "4", "merge_revise": "1"}, {"review": "0,4", "held": true, "settled": 6}]}
 ]})";
}

TEST(Recording, PassesAreReadAsWritten) {
  const auto one = parse_recording(revised_sample(), "r.json");
  ASSERT_TRUE(one) << one.error().message();
  const RecordedAnswer& answer = one->answers[0];
  EXPECT_EQ(answer.commit_step, (std::vector<std::int32_t>{0, 2, 0, 0, 2, 1, 2, 2}));
  ASSERT_EQ(answer.passes.size(), 4u);
  EXPECT_EQ(answer.passes[1].changes[1], (PassChange{5, PassChange::Kind::kCommit, true}));
  EXPECT_EQ(answer.passes[2].merged, (std::vector<PassChange>{{1, PassChange::Kind::kRevise, false}}));
  EXPECT_EQ(answer.passes[2].settled, 1);
  EXPECT_EQ(answer.passes[3].reviewed, (std::vector<std::int32_t>{0, 4}));
  EXPECT_TRUE(answer.passes[3].held);
  const std::string written = recording_text(*one);
  EXPECT_NE(written.find("\"version\": 2"), std::string::npos);
  const auto two = parse_recording(written, "again");
  ASSERT_TRUE(two) << two.error().message();
  EXPECT_EQ(two->answers[0].passes, answer.passes);
  EXPECT_EQ(recording_text(*two), written);
}

TEST(Recording, RefusesDamagedPassesWithTheirPlace) {
  struct Case {
    const char *from, *to, *place, *what;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"\"0-3\"", "\"0-8\"", "answers[0], passes[0], commit", "below 8"},
           {"\"0-3\"", "\"3-0\"", "answers[0], passes[0], commit", "ascending"},
           {"\"0-3\"", "\"0-2,2\"", "answers[0], passes[0], commit", "ascending"},
           {"\"0-3\"", "\"0-\"", "answers[0], passes[0], commit", "ascending"},
           {"\"0-3\"", "\"0,\"", "answers[0], passes[0], commit", "ascending"},
           {"\"0-3\"", "\"-1\"", "answers[0], passes[0], commit", "ascending"},
           {"\"0-3\"", "3", "answers[0], passes[0], commit", "must be a string"},
           {"\"0-3\"", "\"0-2\"", "answers[0], passes, position 3", "never committed"},
           {"\"ends\": \"5\"", "\"ends\": \"3\"", "answers[0], passes[1], ends", "no token"},
           {"\"commit\": \"6,7\"", "\"remask\": \"6,7\"", "answers[0], passes[2]", "position 6 has no token yet"},
           {"\"commit\": \"6,7\"", "\"commit\": \"4,7\"", "answers[0], passes[2], revise", "changes twice"},
           {"\"review\": \"4,5\"", "\"review\": \"4-6\"", "answers[0], passes[2]", "position 6"},
           {"\"refresh\": \"1\"", "\"refresh\": \"7\"", "answers[0], passes[1]", "position 7"},
           {"merge_revise", "merge_commit", "answers[0], passes[2], merge_commit", "unknown"},
           {"true", "1", "answers[0], passes[3], held", "true or false"},
           {"\"settled\": 6", "\"settled\": 9", "answers[0], passes[3], settled", "from 0 to 8"},
           {"\"nfe\": 4", "\"nfe\": 3", "answers[0], passes", "3 passes"},
           {"\"version\": 2", "\"version\": 1", "answers[0], commit_step", "no 'commit_step'"}}) {
    std::string text = revised_sample();
    const std::size_t at = text.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    const auto result = parse_recording(text.replace(at, std::string(c.from).size(), c.to), "r.json");
    ASSERT_FALSE(result) << c.to;
    EXPECT_EQ(result.error().where, std::string("r.json, ") + c.place) << c.to;
    EXPECT_NE(result.error().message().find(c.what), std::string::npos) << result.error().message();
  }
}

TEST(Recording, ListsOfPositionsDoNotExhaustMemory) {
  std::string many = "{\"commit\": \"0-1048575\"}";
  for (int i = 0; i < 40; ++i) many += ", {\"review\": \"0-1048575\"}";
  const std::string text =
      R"({"format": "dllm-recording", "version": 2, "recorded": {"program": "", "command": "", "model": "", "items": 1,
 "correct": 1}, "length": 1048576, "block_length": 4, "options": {}, "answers": [{"prompt_tokens": 3,
 "answer_tokens": 1048576, "finish": "length", "nfe": 41, "rows_forwarded": 20, "rows_scored": 6, "passes": [)" +
      many + "]}]}";
  const auto result = parse_recording(text, "r.json");
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().what.find("too many positions"), std::string::npos) << result.error().message();
}

TEST(Recording, PassesAreCutToWholeBlocks) {
  const Recording recording = *parse_recording(revised_sample(), "r.json");
  EXPECT_EQ(recording.schedule(0, 8)->passes, recording.answers[0].passes);
  const CommitSchedule cut = *recording.schedule(0, 4);
  EXPECT_FALSE(cut.stop);
  ASSERT_EQ(cut.passes.size(), 1u) << "the later reviews are left out";
  EXPECT_EQ(cut.passes[0].settled, 4);
  EXPECT_EQ(cut.pass_of, (std::vector<std::int32_t>{0, 0, 0, 0}));
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

TEST(Replay, RepeatsWhatRevises) {
  GenerateOptions fast = recorded_with("fast"), masked = fast, ahead = fast, system = fast, edits = fast;
  masked.decoder.options["leave_one_out"] = true;
  masked.decoder.options["visible_threshold"] = 0.3;
  ahead.window = {"lookahead", {{"draft_acceptance", std::string("instant")}}};
  system.window.name = "lookahead";
  system.decoder.options["refresh_path"] = std::string("second");
  edits.decoder = {"draft-edit", {}};
  for (const GenerateOptions& options : {fast, masked, ahead, system, edits}) {
    const auto answer = embedded().generate(kQuestion, options);
    ASSERT_TRUE(answer) << answer.error().message();
    EXPECT_EQ(answer->passes.size(), static_cast<std::size_t>(answer->stats.nfe));
    const auto again = embedded().replay(*answer);
    ASSERT_TRUE(again) << answer->options.decoder.name << ": " << again.error().message();
    EXPECT_EQ(again->ids, answer->ids);
    const auto other = embedded().replay(with_other_prompt(*answer));
    ASSERT_TRUE(other) << other.error().message();
    EXPECT_NE(other->ids, answer->ids);
    EXPECT_EQ(other->passes, answer->passes);
    EXPECT_EQ(other->commit_step, answer->commit_step);
    EXPECT_EQ(other->stats.answer_tokens, answer->stats.answer_tokens);
  }
  EXPECT_TRUE(embedded().generate(kQuestion, recorded_with("exact"))->passes.empty());
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

  GenerateOptions guided = recorded_with("exact"), stopped = recorded_with("exact"), hasty = recorded_with("fast"),
                  unsure = recorded_with("exact");
  unsure.cache.name = "entropy";
  guided.cfg_scale = 0.5;
  stopped.stop = {"12"};
  hasty.decoder.options["refresh_merge"] = std::string("ready");
  hasty.decoder.options["refresh_path"] = std::string("second");
  for (const GenerateOptions& options : {guided, stopped, hasty, unsure}) {
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
  const Generation revised = *embedded().generate(kQuestion, recorded_with("fast"));
  EXPECT_FALSE(add_answer(recording, revised)) << "recorded in another way";
  Recording passes;
  passes.options = recorded_with("fast");
  ASSERT_TRUE(add_answer(passes, revised));
  passes.items = 1;
  const auto read_passes = parse_recording(recording_text(passes), "r.json");
  ASSERT_TRUE(read_passes) << read_passes.error().message();
  EXPECT_EQ(read_passes->answers[0].passes, revised.passes);
  EXPECT_EQ(read_passes->answers[0].commit_step, revised.commit_step);
  GenerateOptions longer = recorded_with("exact");
  longer.length = 32;
  EXPECT_FALSE(add_answer(recording, *embedded().generate(kQuestion, longer)));
}

TEST(FuzzCorpus, Recording) { test::replay_corpus("recording", 100, fuzz_recording); }

}  // namespace
}  // namespace dllm
