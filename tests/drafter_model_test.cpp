// --draft-model with a drafter, from files to answers: the library, requests of a server, converted files, refusals.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "dllm/model.h"
#include "dllm/scheduler.h"
#include "golden_model.h"
#include "model/model.h"
#include "random_model.h"
#include "vulkan/vulkan_backend.h"

namespace dllm {
namespace {

using nlohmann::json;

/// The folders of golden/models/drafter.py.
class DrafterFiles : public testing::Test {
 protected:
  static void write(const json& description, bool with_text, const std::string& directory) {
    test::HfCheckpoint checkpoint = test::make_checkpoint({});
    checkpoint.config = description["config"];
    if (!with_text) checkpoint.tokenizer = checkpoint.tokenizer_config = nullptr;
    checkpoint.tensors.clear();
    for (const json& entry : description["tensors"])
      checkpoint.tensors.push_back({entry["name"].get<std::string>(), "F32",
                                    entry["shape"].get<std::vector<std::int64_t>>(), test::tensor_bytes_of(entry)});
    checkpoint.write(directory);
  }

  DrafterFiles() {
    const json golden = json::parse(test::read_file(std::string(test::kGoldenModels) + "drafter-plain.json"));
    write(golden["target"], true, target_.path());
    write(golden, false, drafter_.path());
  }

  Expected<LanguageModel> load(const std::string& drafter, const std::string& backend = "") const {
    LoadOptions options;
    options.threads = 2;
    options.draft_model = drafter;
    options.backend = backend;
    return LanguageModel::load(target_.path(), options);
  }

  static GenerateOptions options(double temperature = 0) {
    GenerateOptions one;
    one.length = 32;
    if (temperature > 0) one.temperature = temperature;
    one.seed = 3;
    return one;
  }

  test::TempDirectory target_, drafter_;
  const std::vector<std::vector<std::int32_t>> prompts_ = {
      {104, 101, 108, 108, 111}, {33}, {115, 33, 104, 101, 32, 97}};
};

TEST_F(DrafterFiles, AnswersAreThoseWithoutIt) {
  const auto plain = load(""), drafted = load(drafter_.path());
  ASSERT_TRUE(plain);
  ASSERT_TRUE(drafted) << drafted.error().message();
  EXPECT_EQ(drafted->resolve(options())->mode.name, "self-speculation");
  for (const auto& prompt : prompts_)
    for (const double temperature : {0.0, 0.9}) {
      const auto expected = plain->generate_ids(prompt, options(temperature));
      for (const char* mode : {"", "ar", "self-speculation"}) {
        GenerateOptions given = options(temperature);
        given.mode.name = mode;
        const auto answer = drafted->generate_ids(prompt, given);
        ASSERT_TRUE(answer) << answer.error().message();
        EXPECT_EQ(answer->ids, expected->ids);
        EXPECT_EQ(answer->finish, expected->finish);
        EXPECT_EQ(answer->stats.rounds > 0, std::string(mode) != "ar");
      }
    }
}

/// Rounds know neither; the words do not depend on rounds.
TEST_F(DrafterFiles, ConstraintsAndPenaltiesHold) {
  const auto plain = load(""), drafted = load(drafter_.path());
  GenerateOptions constrained = options(), penalized = options(0.8);
  constrained.regex = "[a-z ]{1,20}";
  penalized.repetition_penalty = 1.5;
  for (const GenerateOptions& given : {constrained, penalized}) {
    const auto expected = plain->generate_ids(prompts_[0], given), answer = drafted->generate_ids(prompts_[0], given);
    ASSERT_TRUE(expected && answer) << answer.error().message();
    EXPECT_EQ(answer->ids, expected->ids);
  }
}

TEST_F(DrafterFiles, RequestsThatRunTogetherHaveTheirOwnWindows) {
  const auto plain = load(""), drafted = load(drafter_.path());
  const auto scheduler = *Scheduler::create(*drafted, {.parallel = 3, .queue = 16, .prefix_bytes = 1 << 22});
  const OptionMap windows[] = {{}, {{"draft_min", 2}, {"draft_max", 2}}, {{"draft_cut", 0.005}}};
  std::map<std::size_t, Generation> answers;
  const auto submit = [&](const std::vector<std::vector<std::int32_t>>& prompts) {
    std::vector<ScheduledRequest> requests;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      ScheduledRequest one;
      one.prompt = prompts[i];
      one.options = options(0.7);
      one.options.mode = {"self-speculation", windows[i]};
      one.on_done = [&answers, i](Expected<Generation> answer) {
        ASSERT_TRUE(answer) << answer.error().message();
        answers.emplace(i, *std::move(answer));
      };
      requests.push_back(std::move(one));
    }
    ASSERT_TRUE(scheduler->submit(std::move(requests)));
    while (scheduler->step()) {
    }
    ASSERT_EQ(answers.size(), prompts.size());
  };
  std::vector<std::vector<std::int32_t>> prompts = prompts_;
  for (std::size_t i = 0; i < prompts.size(); ++i)
    for (std::int32_t k = 0; k < 20; ++k) prompts[i].push_back(97 + (7 * k + static_cast<std::int32_t>(i)) % 26);
  std::map<std::size_t, Generation> first;
  for (const bool again : {false, true}) {
    first = std::exchange(answers, {});
    submit(prompts);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(answers.at(i).ids, plain->generate_ids(prompts[i], options(0.7))->ids);
      EXPECT_GT(answers.at(i).stats.rounds, 0) << i;
      // What the caches hold of a prompt is not computed again, by neither model.
      EXPECT_EQ(answers.at(i).stats.cached_tokens, again ? 16 : 0);
      // Nor is it missing where the drafter looks for it: the same drafts are made, and kept.
      if (again) {
        EXPECT_EQ(answers.at(i).commit_step, first.at(i).commit_step);
        EXPECT_EQ(answers.at(i).stats.round_tokens, first.at(i).stats.round_tokens);
      }
    }
  }
}

TEST_F(DrafterFiles, ConvertedAndQuantizedDraftersDraftToo) {
  const auto expected = load("")->generate_ids(prompts_[0], options());
  for (const char* type : {"F32", "Q8_0"}) {
    auto source = open_source(drafter_.path());
    ASSERT_TRUE(source) << source.error().message();
    const std::string file = drafter_.file(std::string(type) + ".gguf");
    WriteOptions write;
    write.type = type;
    const auto report = write_model(*source, write, file);
    ASSERT_TRUE(report) << report.error().message();
    const auto drafted = load(file);
    ASSERT_TRUE(drafted) << drafted.error().message();
    const auto answer = drafted->generate_ids(prompts_[0], options());
    EXPECT_EQ(answer->ids, expected->ids);
    EXPECT_GT(answer->stats.rounds, 0);
  }
}

/// A model with modes keeps them; a drafter takes the place of its own drafts.
TEST_F(DrafterFiles, ModelsWithModesTakeDraftersToo) {
  const std::string path = DLLM_SOURCE_DIR "/models/tri-f16.gguf", file = drafter_.file("tri.gguf");
  const ModelDesc desc = (*Model::load(path))->desc();
  const ModelSource source = test::random_source({.architecture = "dflash",
                                                  .width = desc.width,
                                                  .vocab = desc.vocab,
                                                  .drafter = {.target_layers = {1, 3}, .block = 12}});
  WriteOptions write;
  write.type = "F16";
  ASSERT_TRUE(write_model(source, write, file));
  LoadOptions load;
  load.threads = 2;
  const auto plain = LanguageModel::load(path, load);
  load.draft_model = file;
  const auto drafted = LanguageModel::load(path, load);
  ASSERT_TRUE(drafted) << drafted.error().message();
  const std::string question = "7 + 8 = ?";
  for (const char* mode : {"ar", "self-speculation", "diffusion"}) {
    GenerateOptions given;
    given.mode.name = mode;
    const auto expected = plain->generate(question, given), answer = drafted->generate(question, given);
    ASSERT_TRUE(expected && answer) << answer.error().message();
    EXPECT_EQ(answer->ids, expected->ids) << mode;
    const bool same = answer->stats.nfe == expected->stats.nfe;
    EXPECT_EQ(same, std::string(mode) != "self-speculation") << "random drafts are worse than its own";
  }
}

/// The model on a device, the drafter on this processor: the device hands out the same hidden states.
TEST_F(DrafterFiles, ModelsOnADeviceTakeDraftersToo) {
  if (!has_vulkan()) GTEST_SKIP() << vulkan_missing();
  const auto devices = vulkan_devices();
  if (!devices || devices->empty()) GTEST_SKIP() << "this machine has no Vulkan device";
  const auto here = load(drafter_.path()), there = load(drafter_.path(), "vulkan");
  ASSERT_TRUE(there) << there.error().message();
  for (const auto& prompt : prompts_)
    for (const double temperature : {0.0, 0.9}) {
      const auto expected = here->generate_ids(prompt, options(temperature)),
                 answer = there->generate_ids(prompt, options(temperature));
      ASSERT_TRUE(answer) << answer.error().message();
      EXPECT_EQ(answer->ids, expected->ids);
      EXPECT_EQ(answer->commit_step, expected->commit_step);
      EXPECT_GT(answer->stats.rounds, 0);
    }
  LoadOptions split;
  split.draft_model = drafter_.path();
  split.backend = "vulkan";
  split.backend_options["gpu_layers"] = std::int64_t{1};
  const auto refused = LanguageModel::load(target_.path(), split);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("one side"), std::string::npos) << refused.error().message();
}

TEST_F(DrafterFiles, WhatCannotBeIsRefused) {
  const auto alone = LanguageModel::load(drafter_.path());
  ASSERT_FALSE(alone);
  EXPECT_NE(alone.error().message().find("--draft-model"), std::string::npos);

  const auto damaged = [&](const char* key, json value, bool own = false) {
    test::TempDirectory other;
    json golden = json::parse(test::read_file(std::string(test::kGoldenModels) + "drafter-plain.json"));
    (own ? golden["config"]["dflash_config"] : golden["config"])[key] = std::move(value);
    write(golden, false, other.path());
    const auto model = load(other.path());
    return model ? std::string() : model.error().message();
  };
  EXPECT_EQ(damaged("block_size", 4), "");
  EXPECT_NE(damaged("num_target_layers", 9).find("another model"), std::string::npos);
  EXPECT_NE(damaged("target_layer_ids", {1, 3, 6}, true).find("another model"), std::string::npos);
  EXPECT_NE(damaged("target_layer_ids", {3, 1, 4}, true), "") << "an order that the product does not have";
  EXPECT_NE(damaged("mask_token_id", nullptr, true).find("mask_token_id"), std::string::npos);
  EXPECT_EQ(damaged("is_causal", true, true), "");
  EXPECT_NE(damaged("layer_types", {"full_attention", "sliding_attention"}).find("sliding_window"), std::string::npos);
  EXPECT_NE(damaged("layer_types", {"full_attention", "chunked_attention"}).find("chunked"), std::string::npos);
  EXPECT_NE(damaged("layer_types", {"full_attention"}).find("2 layers"), std::string::npos);
  EXPECT_NE(damaged("use_swa", true, true).find("sliding_window"), std::string::npos);
  EXPECT_NE(damaged("rope_is_neox_style", false).find("rope_is_neox_style"), std::string::npos);
  EXPECT_NE(damaged("attention_value_scale", 2, true).find("attention_value_scale"), std::string::npos);
  EXPECT_NE(damaged("attention_bias", true).find("attention_bias"), std::string::npos);
  LoadOptions adapted;
  adapted.draft_model = drafter_.path();
  adapted.lora_draft = {"some.gguf"};
  EXPECT_FALSE(LanguageModel::load(target_.path(), adapted));
}

}  // namespace
}  // namespace dllm
