// The canvas changes the words of an answer, the bound never does.
#include "engine/answer_length.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "dllm/model.h"
#include "dllm/scheduler.h"
#include "engine/resolve.h"

namespace dllm {
namespace {

constexpr const char* kCanvasQuestion =
    "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?";
constexpr const char* kSchema = R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 30})";

const LanguageModel& canvas_model() {
  static const LanguageModel model = *LanguageModel::load("");
  return model;
}

ModelDesc bounded_model() {
  ModelDesc desc;
  desc.mask = 3;
  desc.vocab = 10;
  desc.eos = 2;
  desc.stop_ids = {2};
  desc.context_length = 200;
  return desc;
}

struct Lengths {
  const char* name;
  std::optional<std::int32_t> length, max_tokens;
  std::size_t prompt;
  Position canvas, most;
  bool grows = true;
};

TEST(AnswerLength, CanvasBoundAndContext) {
  for (const Lengths& one : {
           Lengths{"the model's own", {}, {}, 10, 64, 64, false},
           {"a bound below it", {}, 5, 10, 64, 5},
           {"a bound equal to it", {}, 64, 10, 64, 64},
           {"a bound above it", {}, 100, 10, 64, 100},
           {"a bound above the context", {}, 32000, 10, 64, 190},
           {"the most that a bound can be", {}, 2147483647, 10, 64, 190},
           {"all that the context leaves", {}, -1, 10, 64, 190},
           {"the model's own behind a long prompt", {}, {}, 180, 20, 20, false},
           {"one position is left", {}, 4096, 199, 1, 1},
           {"a given canvas", 16, {}, 10, 16, 16, false},
           {"both", 16, 40, 10, 16, 40},
           {"both, the bound below", 16, 4, 10, 16, 4},
           {"a given canvas that just fits", 150, 4096, 50, 150, 150},
       }) {
    GenerateOptions options;
    options.length = one.length;
    options.max_tokens = one.max_tokens;
    const auto resolved = resolve_options(options, bounded_model(), 64);
    ASSERT_TRUE(resolved) << one.name << ": " << resolved.error().message();
    const auto length = answer_length(bounded_model(), *resolved, one.prompt, {});
    ASSERT_TRUE(length) << one.name << ": " << length.error().message();
    EXPECT_EQ(length->canvas, one.canvas) << one.name;
    EXPECT_EQ(length->most, one.most) << one.name;
    EXPECT_EQ(length->grows, one.grows) << one.name;
    EXPECT_EQ(length->room, 200 - static_cast<Position>(one.prompt)) << one.name;
  }
}

TEST(AnswerLength, WhatDoesNotFitAndWhatCannotGoOn) {
  const ModelDesc desc = bounded_model();
  GenerateOptions options;
  options.max_tokens = 150;
  const ResolvedOptions own = *resolve_options(options, desc, 64);
  const auto full = answer_length(desc, own, 200, {});
  ASSERT_FALSE(full);
  EXPECT_NE(full.error().message().find("exceed the context of 200"), std::string::npos) << full.error().message();
  // Given text, and --compat.
  EXPECT_EQ(answer_length(desc, own, 10, {.suffix = {1, 1}})->most, 64);
  EXPECT_EQ(answer_length(desc, own, 10, {.form = {1, -1}})->most, 64);
  options.compat = true;
  EXPECT_EQ(answer_length(desc, *resolve_options(options, desc, 64), 10, {})->most, 64);
  options = {};
  options.length = 151;
  const auto given = answer_length(desc, *resolve_options(options, desc, 64), 50, {});
  ASSERT_FALSE(given);
  EXPECT_NE(given.error().message().find("--canvas-length"), std::string::npos) << given.error().message();
  for (const std::int32_t wrong : {0, -2}) {
    options.max_tokens = wrong;
    const auto refused = resolve_options(options, desc, 64);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().where, "--predict");
  }
}

TEST(AnswerLength, CanvasesThatAreRefinedAreWhole) {
  ModelDesc desc = bounded_model();
  desc.mask.reset();
  desc.canvas.length = 32;
  GenerateOptions options;
  options.max_tokens = 4096;
  const auto length = answer_length(desc, *resolve_options(options, desc), 10, {});
  ASSERT_TRUE(length) << length.error().message();
  EXPECT_EQ(length->canvas, 32);
  EXPECT_EQ(length->most, 160) << "five canvases fit behind 10 tokens into 200";
}

TEST(AnswerLength, ExactLengthTakesTheBoundAsCanvas) {
  GenerateOptions options;
  options.max_tokens = 24;
  options.exact_length = true;
  const ResolvedOptions resolved = *resolve_options(options, bounded_model(), 64);
  EXPECT_EQ(resolved.length, 24);
  EXPECT_EQ(resolved.max_tokens, 0);
  EXPECT_FALSE(resolved.own_length);
  options.length = 16;
  EXPECT_EQ(resolve_options(options, bounded_model(), 64)->length, 16);
  options = {};
  options.max_tokens = -1;
  EXPECT_FALSE(take_bound_as_canvas(options)) << "no number of tokens";
}

TEST(AnswerLength, ModelsWithoutALengthFindItWhereTheMethodCan) {
  const ModelDesc desc = bounded_model();
  GenerateOptions options;
  const ResolvedOptions found = *resolve_options(options, desc);
  EXPECT_EQ(found.suffix.name, "grow");
  EXPECT_TRUE(found.own_length);
  EXPECT_EQ(answer_length(desc, found, 10, {})->canvas, 190) << "as far as the context reaches";
  EXPECT_EQ(resolve_options(options, desc, 64)->suffix.name, "full") << "the file recommends a length";
  for (const auto& set : std::vector<std::function<void(GenerateOptions&)>>{
           [](GenerateOptions& o) { o.length = 40; },
           [](GenerateOptions& o) { o.exact_length = true; },
           [](GenerateOptions& o) { o.defer_eos = true; },
           [](GenerateOptions& o) { o.window.name = "whole"; },
           [](GenerateOptions& o) { o.compat = true; },
           [](GenerateOptions& o) { o.suffix.name = "near"; },
       }) {
    GenerateOptions other;
    set(other);
    const auto resolved = resolve_options(other, desc);
    ASSERT_TRUE(resolved) << resolved.error().message();
    EXPECT_NE(resolved->suffix.name, "grow");
    EXPECT_LE(resolved->length, 128);
  }
  ModelDesc causal = desc;
  causal.causal_block = 4;
  EXPECT_EQ(resolve_options(options, causal)->suffix.name, "full") << "it never sees what follows";
  options.suffix.name = "grow";
  EXPECT_GT(resolve_options(options, desc, 64)->length, 64) << "asked for, it looks beyond the recommendation";
}

TEST(AnswerLength, WhereNoLengthIsKnownOrFoundAnswersGoOn) {
  ModelDesc causal = bounded_model();
  causal.causal_block = 4;
  causal.context_length = 4096;
  const auto most = [&](const GenerateOptions& options, std::int32_t canvas = 0) {
    const auto length = answer_length(causal, *resolve_options(options, causal, canvas), 10, {});
    return std::pair(length->canvas, length->most);
  };
  EXPECT_EQ(most({}), std::pair(128, 512));
  EXPECT_EQ(most({}, 64), std::pair(64, 64)) << "the file recommends a length";
  GenerateOptions options;
  options.max_tokens = 200;
  EXPECT_EQ(most(options), std::pair(128, 200));
  options = {};
  options.length = 40;
  EXPECT_EQ(most(options), std::pair(40, 40));
  for (const auto& set : std::vector<std::function<void(GenerateOptions&)>>{
           [](GenerateOptions& o) { o.exact_length = true; },
           [](GenerateOptions& o) { o.suppress_eos = true; },
           [](GenerateOptions& o) { o.defer_eos = true; },
           [](GenerateOptions& o) { o.compat = true; },
       }) {
    GenerateOptions other;
    set(other);
    EXPECT_EQ(most(other), std::pair(128, 128));
  }
  causal.stop_ids.clear();
  EXPECT_EQ(most({}), std::pair(128, 128)) << "it would never end";
}

// Answers of the embedded model, in canvases that are too short for them.

struct Way {
  const char* name;
  OptionMap options;
};

const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {"default", {}},
      {"low-confidence", {{"algorithm", "low-confidence"}, {"steps", std::int64_t{8}}}},
      {"drawn", {{"algorithm", "origin"}, {"temperature", 0.7}, {"seed", std::uint64_t{5}}}},
      {"penalties", {{"repetition_penalty", 1.3}, {"frequency_penalty", 0.4}}},
      {"guidance", {{"cfg_scale", 0.5}}},
      {"revision", {{"algorithm", "revision"}, {"cache", "dual"}}},
      {"second path", {{"algorithm", "revision"}, {"refresh_path", "second"}, {"cache", "dual"}}},
      {"draft-edit", {{"algorithm", "draft-edit"}}},
      {"credit", {{"algorithm", "credit"}, {"cache", "prefix"}}},
      {"hierarchical-remask", {{"algorithm", "hierarchical-remask"}}},
      {"levenshtein",
       {{"algorithm", "levenshtein"}, {"delete_token", std::int64_t{5}}, {"insert_token", std::int64_t{6}}}},
      {"whole", {{"window", "whole"}, {"algorithm", "entropy"}}},
      {"sliding", {{"window", "sliding"}, {"cache", "vicinity"}}},
      {"pipeline", {{"window", "pipeline"}}},
      {"semantic", {{"window", "semantic"}}},
      {"delayed", {{"cache", "delayed-greedy"}}},
      {"partial", {{"cache", "partial"}}},
      {"grow", {{"suffix", "grow"}}},
      {"near", {{"suffix", "near"}}},
      {"smoothed", {{"smooth", 0.4}}},
      {"schema", {{"json_schema", kSchema}}},
      {"schema, grow", {{"json_schema", kSchema}, {"suffix", "grow"}, {"algorithm", "low-confidence"}}},
  };
  return all;
}

GenerateOptions options_of(const Way& way, std::int32_t canvas, std::optional<std::int32_t> bound) {
  GenerateOptions options;
  for (const auto& [key, value] : way.options) EXPECT_TRUE(options.set(key, to_text(value))) << key;
  options.length = canvas;
  options.max_tokens = bound;
  return options;
}

TEST(AnswerLength, NoBoundChangesAWordBeforeIt) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    const auto whole = canvas_model().generate(kCanvasQuestion, options_of(way, 16, 120));
    ASSERT_TRUE(whole) << whole.error().message();
    for (const std::int32_t bound : {1, 7, 16, 17, 40, 119}) {
      const auto cut = canvas_model().generate(kCanvasQuestion, options_of(way, 16, bound));
      ASSERT_TRUE(cut) << cut.error().message();
      const std::int32_t tokens = std::min(whole->stats.answer_tokens, bound);
      EXPECT_EQ(cut->stats.answer_tokens, tokens);
      EXPECT_TRUE(std::equal(cut->ids.begin(), cut->ids.begin() + tokens, whole->ids.begin())) << "bound " << bound;
      EXPECT_LE(cut->stats.nfe, whole->stats.nfe);
      EXPECT_EQ(cut->options.length, 16);
      if (bound < whole->stats.answer_tokens) {
        EXPECT_EQ(cut->finish, FinishReason::kLength);
        EXPECT_EQ(cut->ids.size(), static_cast<std::size_t>(bound));
      } else {
        EXPECT_EQ(cut->finish, whole->finish);
        EXPECT_EQ(cut->text, whole->text);
        EXPECT_EQ(cut->hash, whole->hash);
      }
    }
    // Without a bound the canvas is the most, and its words are the same. A structure is completed within it.
    if (way.options.contains("json_schema")) continue;
    const auto canvas = canvas_model().generate(kCanvasQuestion, options_of(way, 16, std::nullopt));
    ASSERT_TRUE(canvas) << canvas.error().message();
    EXPECT_TRUE(std::equal(canvas->ids.begin(), canvas->ids.end(), whole->ids.begin()));
  }
}

TEST(AnswerLength, AnswersGoOnAfterTheirCanvas) {
  const auto own = canvas_model().generate(kCanvasQuestion, {});
  ASSERT_TRUE(own);
  GenerateOptions options;
  options.length = 8;
  options.max_tokens = 100;
  std::string streamed;
  std::size_t positions = 0, steps = 0;
  const auto answer = canvas_model().generate(kCanvasQuestion, options, [&](const StepEvent& event) {
    EXPECT_TRUE(event.text.starts_with(streamed)) << "the streamed text is taken back";
    EXPECT_GE(event.canvas.size(), positions);
    EXPECT_EQ(event.prompt_length, own->stats.prompt_tokens);
    EXPECT_EQ(event.step, static_cast<std::int32_t>(steps++));
    EXPECT_EQ(event.nfe, event.step + 1);
    streamed = event.text;
    positions = event.canvas.size();
    return true;
  });
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->finish, FinishReason::kStop);
  EXPECT_GT(answer->stats.answer_tokens, 8) << "it is longer than the canvas";
  EXPECT_EQ(answer->ids.size() % 8, 0u) << "canvases have one length";
  EXPECT_EQ(answer->ids.size(), answer->commit_step.size());
  EXPECT_EQ(answer->stats.nfe, static_cast<std::int32_t>(steps));
  EXPECT_TRUE(std::is_sorted(answer->commit_step.begin(), answer->commit_step.begin() + 8));
  for (std::size_t i = 8; i < answer->ids.size(); ++i)
    EXPECT_TRUE(answer->commit_step[i] < 0 || answer->commit_step[i] > answer->commit_step[i % 8]) << i;
  EXPECT_TRUE(answer->text.starts_with(streamed));
  EXPECT_NE(answer->text.find("#### 10"), std::string::npos) << answer->text;
  // The rest of the answer is an answer to prompt and canvas.
  std::vector<std::int32_t> prompt = answer->prompt_ids;
  prompt.insert(prompt.end(), answer->ids.begin(), answer->ids.begin() + 8);
  options.max_tokens.reset();
  const auto second = canvas_model().generate_ids(prompt, options);
  ASSERT_TRUE(second);
  EXPECT_TRUE(std::equal(second->ids.begin(), second->ids.end(), answer->ids.begin() + 8));
  EXPECT_FALSE(canvas_model().replay(*answer)) << "a schedule is of one canvas";
}

TEST(AnswerLength, BatchesAndSchedulersGiveTheSameAnswers) {
  const auto scheduler = Scheduler::create(canvas_model(), {.parallel = 3});
  ASSERT_TRUE(scheduler);
  std::vector<std::vector<ChatTurn>> conversations;
  std::vector<Generation> alone, scheduled(4);
  GenerateOptions options;
  options.length = 8;
  options.max_tokens = 44;
  for (std::size_t i = 0; i < scheduled.size(); ++i) {
    conversations.push_back({{"user", i % 2 == 0 ? kCanvasQuestion : "Reverse: a b c d e f g h"}});
    alone.push_back(*canvas_model().generate(conversations.back(), options));
    ScheduledRequest request;
    request.prompt = *canvas_model().apply_template(conversations.back());
    request.options = options;
    request.on_done = [&scheduled, i](Expected<Generation> answer) { scheduled[i] = *std::move(answer); };
    ASSERT_TRUE((*scheduler)->submit({std::move(request)}));
  }
  while ((*scheduler)->step()) {
  }
  const auto batch = canvas_model().generate_batch(conversations, options, 2);
  ASSERT_TRUE(batch) << batch.error().message();
  for (std::size_t i = 0; i < scheduled.size(); ++i) {
    EXPECT_EQ(scheduled[i].text, alone[i].text);
    EXPECT_EQ((*batch)[i].text, alone[i].text);
    EXPECT_EQ(scheduled[i].hash, alone[i].hash);
    EXPECT_EQ((*batch)[i].stats.nfe, alone[i].stats.nfe);
  }
}

TEST(AnswerLength, StopTextsAreFoundAcrossCanvases) {
  GenerateOptions options;
  options.length = 8;
  options.max_tokens = 100;
  const auto whole = canvas_model().generate(kCanvasQuestion, options);
  ASSERT_TRUE(whole);
  const auto first = canvas_model().detokenize(std::vector(whole->ids.begin(), whole->ids.begin() + 8), false);
  ASSERT_TRUE(first);
  ASSERT_GT(whole->text.size(), first->size() + 1);
  // From the last character of the first canvas to the first one of the second.
  const std::string across = whole->text.substr(first->size() - 1, 2);
  options.stop = {across};
  const auto stopped = canvas_model().generate(kCanvasQuestion, options);
  ASSERT_TRUE(stopped);
  EXPECT_EQ(stopped->finish, FinishReason::kStop);
  EXPECT_EQ(stopped->stop_text, across);
  EXPECT_EQ(stopped->text, whole->text.substr(0, whole->text.find(across)));
}

TEST(AnswerLength, StructuresAreCutOrGoOn) {
  GenerateOptions options;
  options.json_schema = R"({"type": "object", "properties": {"answer": {"type": "integer"},
                            "unit": {"const": "pens in the box of Ben"}}, "required": ["answer", "unit"]})";
  const auto whole = canvas_model().generate(kCanvasQuestion, options);
  ASSERT_TRUE(whole) << whole.error().message();
  EXPECT_EQ(whole->finish, FinishReason::kStop);
  options.max_tokens = 4096;
  EXPECT_EQ(canvas_model().generate(kCanvasQuestion, options)->text, whole->text);
  options.length = 8;  // too short for any such text
  const auto going = canvas_model().generate(kCanvasQuestion, options);
  ASSERT_TRUE(going) << going.error().message();
  EXPECT_EQ(going->finish, FinishReason::kStop);
  EXPECT_TRUE(going->text.ends_with("pens in the box of Ben\"}")) << going->text;
  options.max_tokens = 10;
  const auto cut = canvas_model().generate(kCanvasQuestion, options);
  ASSERT_TRUE(cut) << cut.error().message();
  EXPECT_EQ(cut->finish, FinishReason::kLength);
  EXPECT_EQ(cut->stats.answer_tokens, 10);
  EXPECT_TRUE(going->text.starts_with(cut->text)) << cut->text;
  options.max_tokens.reset();
  const auto refused = canvas_model().generate(kCanvasQuestion, options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().where, "--canvas-length");
  // The model's own canvas is no instruction: text goes on after it.
  options = {};
  options.regex = std::string(120, 'z');
  const auto longer = canvas_model().generate("Copy: z", options);
  ASSERT_TRUE(longer) << longer.error().message();
  EXPECT_EQ(longer->text, std::string(120, 'z'));
  EXPECT_EQ(longer->finish, FinishReason::kStop);
}

TEST(AnswerLength, ExactAnswersGoOnToTheirBound) {
  GenerateOptions options;
  options.length = 16;
  options.max_tokens = 40;
  options.exact_length = true;
  const auto answer = canvas_model().generate(kCanvasQuestion, options);
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->ids.size(), 40u);
  EXPECT_EQ(answer->stats.committed_tokens, 40);
  EXPECT_TRUE(std::ranges::all_of(answer->commit_step, [](std::int32_t pass) { return pass >= 0; }));
}

}  // namespace
}  // namespace dllm
