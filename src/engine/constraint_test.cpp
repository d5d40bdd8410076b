// Answers within a language: GenerateOptions::regex and json_schema.
#include "engine/constraint.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "constrain/testing/validate.h"
#include "dllm/scheduler.h"

namespace dllm {
namespace {

using Json = nlohmann::ordered_json;

#ifdef __SANITIZE_ADDRESS__
constexpr int kSchemaAnswers = 16;
#else
constexpr int kSchemaAnswers = 200;
#endif

const char* const kAnswerSchemas[] = {
    R"({"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]})",
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "count": {"type": "integer",
        "minimum": 0, "maximum": 99}, "sure": {"type": "boolean"}}, "required": ["name", "count", "sure"],
        "additionalProperties": false})",
    R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4})",
    R"({"anyOf": [{"type": "number"}, {"type": "object", "properties": {"unit": {"enum": ["apples", "pens"]},
        "of": {"type": ["string", "null"]}}, "required": ["unit"]}]})",
    R"({"type": "object", "properties": {"steps": {"type": "array", "items": {"$ref": "#/$defs/step"}, "minItems": 1}},
        "required": ["steps"], "$defs": {"step": {"type": "object", "properties": {"n": {"type": "integer"},
        "op": {"const": "add"}}, "required": ["n"]}}})",
};

const std::vector<OptionMap>& methods() {
  static const std::vector<OptionMap> all = {{},
                                             {{"algorithm", "low-confidence"}, {"steps", std::int64_t{8}}},
                                             {{"algorithm", "random"}},
                                             {{"algorithm", "origin"}, {"seed", std::uint64_t{5}}},
                                             {{"algorithm", "entropy-bound"}},
                                             {{"algorithm", "entropy-exit"}},
                                             {{"algorithm", "margin"}},
                                             {{"algorithm", "factor"}},
                                             {{"algorithm", "hierarchical"}},
                                             {{"algorithm", "llada2"}},
                                             {{"algorithm", "sdar-dynamic"}},
                                             {{"algorithm", "cumulative-error"}, {"cfg_scale", 0.5}},
                                             {{"window", "whole"}},
                                             {{"window", "sliding"}},
                                             {{"window", "adaptive"}},
                                             {{"window", "lookahead"}},
                                             {{"cache", "prefix"}},
                                             {{"cache", "dual"}},
                                             {{"smooth", 0.5}},
                                             {{"algorithm", "klass"}},
                                             {{"algorithm", "t2m"}},
                                             {{"algorithm", "t2m"}, {"suspect", "overruled"}, {"suspect_bound", 0.2}},
                                             {{"algorithm", "wino"}},
                                             {{"algorithm", "cover"}, {"verify_threshold", 0.9}},
                                             {{"algorithm", "draft-edit"}, {"threshold", 0.3}, {"edit_threshold", 0.1}},
                                             {{"algorithm", "hierarchical-remask"}, {"remask_threshold", 0.9}},
                                             {{"algorithm", "revision"}, {"visible_threshold", 0.1}},
                                             {{"algorithm", "revision"},
                                              {"run_threshold", 0.05},
                                              {"visible_threshold", 0.2},
                                              {"revise_threshold", 0.05},
                                              {"max_revisions", std::int64_t{9}},
                                              {"reopen", true}},
                                             {{"algorithm", "revision"}, {"leave_one_out", true}, {"cache", "dual"}},
                                             {{"preset", "fast"}},
                                             {{"preset", "frugal"}},
                                             {{"preset", "swift"}}};
  return all;
}

GenerateOptions options_for(const OptionMap& method, std::int32_t length) {
  GenerateOptions options;
  options.length = length;
  if (!method.contains("window") || method.at("window") != OptionValue("whole")) options.block_length = 16;
  for (const auto& [key, value] : method) EXPECT_TRUE(options.set(key, to_text(value))) << key;
  return options;
}

class ConstraintTest : public ::testing::Test {
 protected:
  LanguageModel model = *LanguageModel::load("");
};

TEST_F(ConstraintTest, EverySchemaAnswerParsesAndValidates) {
  for (int i = 0; i < kSchemaAnswers; ++i) {
    const auto n = static_cast<std::size_t>(i);
    const char* schema = kAnswerSchemas[n % std::size(kAnswerSchemas)];
    GenerateOptions options = options_for(methods()[n % methods().size()], i % 3 == 0 ? 32 : 64);
    options.json_schema = schema;
    const std::string prompt =
        "Ben has " + std::to_string(3 + i % 17) + " pens and gets " + std::to_string(1 + i % 5) + " more. How many?";
    const auto answer = model.generate(prompt, options);
    ASSERT_TRUE(answer.has_value()) << i << ": " << answer.error().message();
    const Json value = Json::parse(answer->text, nullptr, /*allow_exceptions=*/false);
    ASSERT_FALSE(value.is_discarded()) << i << ": " << answer->text;
    EXPECT_TRUE(constrain::test::validates(value, Json::parse(schema), Json::parse(schema))) << answer->text;
    EXPECT_EQ(answer->finish, FinishReason::kStop) << i << ": " << answer->text;
  }
}

TEST_F(ConstraintTest, EveryMethodStaysWithinTheExpression) {
  const std::string regex = "(The answer is [0-9]{1,3}\\.|I do not know, [a-z]{3,9}!)( [A-Z][a-z]+)*";
  for (const OptionMap& method : methods()) {
    GenerateOptions options = options_for(method, 48);
    options.regex = regex;
    const auto answer = model.generate("Dan has 7 apples and eats 3. How many are left?", options);
    ASSERT_TRUE(answer.has_value()) << answer.error().message();
    EXPECT_TRUE(std::regex_match(answer->text, std::regex(regex))) << answer->text;
  }
}

// The likeliest answer is the constrained one if it fits.
TEST_F(ConstraintTest, WhatFitsIsUnchanged) {
  for (const char* prompt : {"Dan has 7 apples and eats 3. How many are left?", "Say hello", "What is 2+2?"}) {
    GenerateOptions options;
    options.block_length = 8;
    const auto free = model.generate(prompt, options);
    options.regex = "(.|\\n)*";
    const auto bound = model.generate(prompt, options);
    ASSERT_TRUE(bound.has_value()) << bound.error().message();
    EXPECT_EQ(bound->text, free->text);
    EXPECT_EQ(bound->stats.nfe, free->stats.nfe);
  }
}

TEST_F(ConstraintTest, AnswersOfABatchEqualSingleOnes) {
  auto made = Scheduler::create(model, {.parallel = 4, .queue = 16});
  ASSERT_TRUE(made.has_value());
  std::vector<ScheduledRequest> requests;
  std::vector<std::string> together(8);
  for (std::size_t i = 0; i < together.size(); ++i) {
    ScheduledRequest one;
    one.prompt = *model.apply_template({{"user", "Count to " + std::to_string(i)}});
    one.options.length = 40;
    one.options.temperature = i % 4 < 2 ? 0 : 1.5;
    one.options.seed = i;
    if (i % 2 == 0) one.options.json_schema = kAnswerSchemas[i % std::size(kAnswerSchemas)];
    one.on_done = [&together, i](const Expected<Generation>& answer) {
      together[i] = answer ? answer->text : "failed";
    };
    requests.push_back(std::move(one));
  }
  const std::vector<ScheduledRequest> copies = requests;
  ASSERT_TRUE((*made)->submit(std::move(requests)).has_value());
  while ((*made)->step()) {
  }
  for (std::size_t i = 0; i < together.size(); ++i)
    EXPECT_EQ(together[i], model.generate_ids(copies[i].prompt, copies[i].options)->text) << i;
}

/// At a temperature: the structure holds with every method, a seed gives its answer again, other seeds give others.
TEST_F(ConstraintTest, DrawnAnswersKeepTheStructure) {
  std::size_t differ = 0;
  for (std::size_t n = 0; n < kSchemaAnswers / 2; ++n) {
    const OptionMap& method = methods()[n % methods().size()];
    GenerateOptions options = options_for(method, 48);
    options.json_schema = kAnswerSchemas[n % std::size(kAnswerSchemas)];
    options.temperature = n % 3 == 0 ? 0.7 : 3;
    if (n % 4 == 1) options.top_p = 0.9;
    if (n % 4 == 2) options.top_k = 3;
    options.seed = n;
    const auto answer = model.generate("Ben has 3 pens and gets 4 more. How many?", options);
    if (!answer && answer.error().message().find("greedy predictions only") != std::string::npos) continue;
    ASSERT_TRUE(answer.has_value()) << answer.error().message();
    const Json value = Json::parse(answer->text, nullptr, false);
    ASSERT_FALSE(value.is_discarded()) << n << ": " << answer->text;
    const Json schema = Json::parse(*options.json_schema);
    EXPECT_TRUE(constrain::test::validates(value, schema, schema)) << n << ": " << answer->text;
    EXPECT_EQ(answer->ids, model.generate("Ben has 3 pens and gets 4 more. How many?", options)->ids);
    options.seed = n + 1000;
    differ += model.generate("Ben has 3 pens and gets 4 more. How many?", options)->ids != answer->ids ? 1 : 0;
  }
  EXPECT_GT(differ, kSchemaAnswers / 8);
}

TEST_F(ConstraintTest, WhatCannotBeCombinedIsRefused) {
  const std::vector<std::pair<OptionMap, std::string>> cases = {
      {{{"top_k", std::int64_t{5}}, {"algorithm", "sdar-dynamic"}}, "--top-k"},
      {{{"algorithm", "origin"}, {"top_p", 0.9}}, "--top-p"},
      {{{"algorithm", "origin"}, {"min_p", 0.1}}, "--min-p"},
      {{{"exact_length", true}}, "--exact-length"},
      {{{"defer_eos", true}}, "--defer-eos"},
      {{{"compat", true}}, "--compat"},
      {{{"algorithm", "credit"}}, "--algorithm"},
      {{{"algorithm", "levenshtein"}, {"delete_token", std::int64_t{3}}, {"insert_token", std::int64_t{4}}},
       "--algorithm"},
      {{{"algorithm", "draft-edit"}, {"penalty_lambda", 1.0}}, "--algorithm"},
      {{{"algorithm", "revision"}, {"refresh_path", "second"}}, "--refresh-path"},
      {{{"window", "lookahead"}, {"draft_acceptance", "instant"}}, "--draft-acceptance"},
      {{{"json_schema", R"({"type": "null"})"}}, "--regex"},
      {{{"length", std::int64_t{3}}}, "--canvas-length"},
      {{{"regex", "(a"}}, "--regex byte 2 of '(a'"},
      {{{"regex", "a{1,9000}b{1,9000}"}}, "--regex"},
      {{{"regex", ""}}, "--regex"},
  };
  for (const auto& [options, where] : cases) {
    GenerateOptions given;
    given.regex = "The answer is 12345678";
    for (const auto& [key, value] : options) ASSERT_TRUE(given.set(key, to_text(value))) << key;
    const auto answer = model.generate("Hello", given);
    ASSERT_FALSE(answer.has_value()) << where;
    EXPECT_EQ(answer.error().where, where) << answer.error().message();
  }
}

/// As a bound does: the text is the structure's until then.
TEST_F(ConstraintTest, AStopTextCutsTheAnswer) {
  GenerateOptions options;
  options.regex = "The answer is [0-9]{3}; the rest is [a-z]{2,20}\\.";
  const auto whole = model.generate("Hello", options);
  ASSERT_TRUE(whole.has_value()) << whole.error().message();
  for (const char* stop : {"; the", " is ", "."}) {
    options.stop = {stop, "nowhere"};
    const auto cut = model.generate("Hello", options);
    ASSERT_TRUE(cut.has_value()) << cut.error().message();
    EXPECT_EQ(cut->text, whole->text.substr(0, whole->text.find(stop))) << stop;
    EXPECT_EQ(cut->finish, FinishReason::kStop);
  }
  options.stop = {"nowhere"};
  EXPECT_EQ(model.generate("Hello", options)->text, whole->text);
}

/// What was not compiled to its end says nothing about the structure: it is not kept.
TEST_F(ConstraintTest, ACompilationEndsWithItsClient) {
  auto made = Scheduler::create(model, {.parallel = 1, .queue = 1});
  const auto submit = [&](std::stop_token stop) {
    ScheduledRequest one;
    one.prompt = *model.prompt_ids("Ben has", false);
    one.options.length = 4;
    one.options.regex = "[a-z]{1,9} [0-9]+";
    one.stop = std::move(stop);
    std::vector<ScheduledRequest> requests;
    requests.push_back(std::move(one));
    return (*made)->submit(std::move(requests));
  };
  std::stop_source gone;
  gone.request_stop();
  const auto refused = submit(gone.get_token());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(submit({}).has_value());
}

TEST_F(ConstraintTest, SuppressedEndsFillTheAnswer) {
  GenerateOptions options;
  options.length = 12;
  options.suppress_eos = true;
  options.regex = "[a-z ]*";
  const auto answer = model.generate("Hello", options);
  ASSERT_TRUE(answer.has_value()) << answer.error().message();
  EXPECT_TRUE(std::regex_match(answer->text, std::regex("[a-z ]*")));
}

TEST_F(ConstraintTest, TextAfterTheAnswerIsNoPartOfIt) {
  auto made = Scheduler::create(model, {.parallel = 1, .queue = 1});
  ScheduledRequest one;
  one.prompt = *model.prompt_ids("Ben has", false);
  one.suffix = *model.tokenize(" pens.", false);
  one.options.length = 4;
  one.options.regex = " [0-9]+";
  std::string text;
  one.on_done = [&text](const Expected<Generation>& answer) {
    text = answer ? answer->text : answer.error().message();
  };
  std::vector<ScheduledRequest> requests;
  requests.push_back(std::move(one));
  ASSERT_TRUE((*made)->submit(std::move(requests)).has_value());
  while ((*made)->step()) {
  }
  EXPECT_TRUE(std::regex_match(text, std::regex(" [0-9]+"))) << text;
}

/// A token that may not be chosen is no part of the language either: else answers could need it and have no next token.
TEST_F(ConstraintTest, BannedTokensAreNoWayOn) {
  std::string digits;
  const std::vector<std::int32_t> ids = *model.tokenize("0123456789", /*special=*/false);
  for (const std::int32_t id : ids) digits += std::to_string(id) + "-inf,";
  digits.pop_back();
  GenerateOptions options;
  options.logit_bias = digits;
  options.regex = "[0-9][0-9]|abc";
  EXPECT_EQ(model.generate("Solve 7+5.", options)->text, "abc");
  options.regex = "[0-9][0-9]";
  const auto none = model.generate("Solve 7+5.", options);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kUsage);
  EXPECT_NE(none.error().message().find("--logit-bias"), std::string::npos);
  options.logit_bias = std::to_string(ids[1]) + "-inf";
  const auto other = model.generate("Solve 7+5.", options);
  ASSERT_TRUE(other) << "compiled for other bans";
  EXPECT_EQ(other->text.find('1'), std::string::npos) << other->text;
  options.logit_bias.reset();
  EXPECT_EQ(model.generate("Solve 7+5.", options)->text, "12") << "compiled for bans";
}

}  // namespace
}  // namespace dllm
