// -ngl as users give it: whole loads, every method, many requests, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/temp_dir.h"
#include "dllm/model.h"
#include "dllm/options.h"
#include "dllm/scheduler.h"
#include "engine/load.h"
#include "format/gguf.h"
#include "numerics/tensor_type.h"
#include "vulkan/vulkan_backend.h"

namespace dllm {
namespace {

constexpr const char* kQuestion = "Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?";

/// Of few tokens, where many methods answer it: a driver on processors takes its time.
constexpr const char* kShort = "7+5=";

/// A number of layers on the device; below 0: not given.
LoadOptions with_layers(std::int64_t layers) {
  LoadOptions options;
  options.threads = 1;
  if (layers >= 0) options.backend_options["gpu_layers"] = layers;
  return options;
}

GenerateOptions short_answer() {
  GenerateOptions options;
  options.length = 16;
  return options;
}

void expect_same(const Expected<Generation>& actual, const Expected<Generation>& expected) {
  ASSERT_TRUE(expected) << expected.error().message();
  ASSERT_TRUE(actual) << actual.error().message();
  EXPECT_EQ(actual->hash, expected->hash);
  EXPECT_EQ(actual->confidence, expected->confidence);
  EXPECT_EQ(actual->commit_step, expected->commit_step);
  EXPECT_EQ(actual->stats.nfe, expected->stats.nfe);
}

/// The embedded model, which has five layers: whole here, and with two on the device.
class GpuLayerOptions : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto devices = vulkan_devices();
    if (!devices || devices->empty()) return;
    here_ = std::make_unique<LanguageModel>(*LanguageModel::load("", with_layers(-1)));
    split_ = std::make_unique<LanguageModel>(*LanguageModel::load("", with_layers(2)));
  }
  static void TearDownTestSuite() { here_.reset(), split_.reset(); }
  void SetUp() override {
    if (!split_) GTEST_SKIP() << "this machine has no Vulkan device";
  }

  static std::unique_ptr<LanguageModel> here_, split_;
};

std::unique_ptr<LanguageModel> GpuLayerOptions::here_, GpuLayerOptions::split_;

TEST_F(GpuLayerOptions, SayWhatIsWhere) {
  const auto status = split_->device_status();
  ASSERT_TRUE(status);
  EXPECT_TRUE(status->split.starts_with("on this processor: layers 1 to 3 of 5 (")) << status->split;
  EXPECT_NE(status->split.find(": layers 4 to 5 and the head ("), std::string::npos) << status->split;
  EXPECT_NE(split_->isa().find("; layers 1 to 3 of 5 on " + here_->isa()), std::string::npos) << split_->isa();
  EXPECT_EQ(split_->arithmetic(), here_->arithmetic());
}

TEST_F(GpuLayerOptions, EveryNumberHasTheSameAnswer) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 40; ++i) ids.push_back((i * 37 + i % 5) % 700);
  const auto expected = here_->logits(ids, false);
  const auto answer = here_->generate(kQuestion, short_answer());
  ASSERT_TRUE(expected);
  for (const std::int64_t layers : {0, 1, 4, 99}) {
    SCOPED_TRACE(layers);
    const auto model = LanguageModel::load("", with_layers(layers));
    ASSERT_TRUE(model) << model.error().message();
    const auto logits = model->logits(ids, false);
    ASSERT_TRUE(logits) << logits.error().message();
    EXPECT_EQ(*logits, *expected);
    expect_same(model->generate(kQuestion, short_answer()), answer);
    const auto status = model->device_status();
    EXPECT_EQ(status.has_value(), layers > 0) << "0: no device is opened";
    if (layers == 0) {
      EXPECT_EQ(model->isa(), here_->isa());
    }
    if (layers == 99) {
      EXPECT_EQ(status->split, "") << "all layers";
    }
    if (layers == 4) {
      EXPECT_TRUE(status->split.starts_with("on this processor: layer 1 of 5 (")) << status->split;
    }
  }
}

TEST_F(GpuLayerOptions, EveryDecoderAndCachePolicy) {
  int same = 0;
  for (const PartInfo& part : options_info().parts) {
    if (part.name != "decoder" && part.name != "cache") continue;
    for (const MethodInfo& method : part.methods) {
      SCOPED_TRACE(part.name + " " + method.name);
      GenerateOptions options;
      options.length = 8;
      options.block_length = 4;
      (part.name == "cache" ? options.cache : options.decoder).name = method.name;
      const auto expected = here_->generate(kShort, options), actual = split_->generate(kShort, options);
      if (!expected) {
        ASSERT_FALSE(actual);
        EXPECT_EQ(actual.error().message(), expected.error().message());
        continue;
      }
      expect_same(actual, expected);
      ++same;
    }
  }
  EXPECT_GE(same, 29);
}

TEST_F(GpuLayerOptions, GuidanceDrawsAndBatches) {
  GenerateOptions drawn = short_answer(), guided = short_answer();
  drawn.temperature = 0.8;
  drawn.top_p = 0.9;
  drawn.seed = 11;
  guided.cfg_scale = 0.5;
  for (const GenerateOptions& options : {drawn, guided})
    expect_same(split_->generate(kQuestion, options), here_->generate(kQuestion, options));
  const std::vector<std::vector<ChatTurn>> questions = {{{"user", kQuestion}}, {{"user", "Solve 7+5."}}};
  const auto answers = here_->generate_batch(questions, drawn, 2), same = split_->generate_batch(questions, drawn, 2);
  ASSERT_TRUE(answers && same);
  for (std::size_t i = 0; i < questions.size(); ++i) expect_same((*same)[i], (*answers)[i]);
}

/// The embedded model, in F32 but for the last layer's matrices.
std::string write_mixed(const test::TempDir& directory) {
  const auto source = open_or_embedded("");
  EXPECT_TRUE(source);
  GgufWriter writer(source->metadata);
  std::deque<std::vector<std::byte>> storage;
  for (const SourceTensor& tensor : source->tensors) {
    const bool narrow = tensor.name.starts_with("blk.4.") && tensor.shape.size() == 2;
    std::vector<std::byte>& bytes = storage.emplace_back(tensor.data.begin(), tensor.data.end());
    if (narrow) {
      bytes.resize(bytes.size() / 2);
      codec(TensorType::kBF16)
          .quantize(reinterpret_cast<const float*>(tensor.data.data()), bytes.data(), element_count(tensor.shape));
    }
    EXPECT_TRUE(
        writer.add(tensor.name, narrow ? TensorType::kBF16 : tensor.type, tensor.shape,
                   [&bytes]() -> Expected<std::span<const std::byte>> { return std::span<const std::byte>(bytes); }));
  }
  const auto written = writer.write(directory / "mixed");
  EXPECT_TRUE(written) << written.error().message();
  return directory / "mixed";
}

/// Whose type of K and V, F16, is not that of the first layers alone.
TEST_F(GpuLayerOptions, TheWholeModelChoosesTheTypeOfItsCaches) {
  const test::TempDir directory;
  const std::string path = write_mixed(directory);
  const auto whole = LanguageModel::load(path, with_layers(-1)), split = LanguageModel::load(path, with_layers(2));
  ASSERT_TRUE(whole && split) << split.error().message();
  const std::vector<std::int32_t> ids = {5, 17, 200, 9, 31, 77, 412, 3};
  EXPECT_EQ(*split->logits(ids, false), *whole->logits(ids, false));
}

/// Later requests take K and V of earlier ones, from both parts.
TEST_F(GpuLayerOptions, PrefixesAreReused) {
  std::vector<Generation> answers[2];
  std::uint64_t hits[2] = {};
  for (const int side : {0, 1}) {
    const auto scheduler =
        Scheduler::create(side == 0 ? *here_ : *split_, {.parallel = 2, .queue = 8, .prefix_bytes = 64 << 20});
    ASSERT_TRUE(scheduler) << scheduler.error().message();
    std::vector<std::int32_t> prompt;
    for (int turn = 0; turn < 3; ++turn) {
      for (std::int32_t i = 0; i < 40; ++i) prompt.push_back(100 + (i * 7 + turn * 3) % 500);
      ScheduledRequest request;
      request.prompt = prompt;
      request.options = short_answer();
      request.options.cache.name = "prefix";
      request.on_done = [&](Expected<Generation> answer) {
        ASSERT_TRUE(answer) << answer.error().message();
        answers[side].push_back(*std::move(answer));
      };
      std::vector<ScheduledRequest> one;
      one.push_back(std::move(request));
      ASSERT_TRUE((*scheduler)->submit(std::move(one)));
      while ((*scheduler)->step()) {
      }
    }
    hits[side] = (*scheduler)->counters().prefix_hits;
  }
  ASSERT_EQ(answers[1].size(), answers[0].size());
  for (std::size_t i = 0; i < answers[0].size(); ++i) {
    EXPECT_EQ(answers[1][i].hash, answers[0][i].hash);
    EXPECT_EQ(answers[1][i].confidence, answers[0][i].confidence);
    EXPECT_EQ(answers[1][i].stats.cached_tokens, answers[0][i].stats.cached_tokens);
  }
  EXPECT_EQ(hits[1], hits[0]);
}

/// A copy of the model as --draft-model is the processor's, so all layers must be there.
TEST_F(GpuLayerOptions, CopiesDraftWhereNoLayerIsOnTheDevice) {
  const std::string path = DLLM_SOURCE_DIR "/models/tri-f16.gguf";
  LoadOptions options = with_layers(0);
  options.draft_model = path;
  const auto model = LanguageModel::load(path, options);
  EXPECT_TRUE(model) << model.error().message();
  options.backend_options["gpu_layers"] = std::int64_t{99};
  const auto refused = LanguageModel::load(path, options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().where, "--draft-model");
}

TEST_F(GpuLayerOptions, WhatASplitDoesNotReadIsAnError) {
  LoadOptions options = with_layers(2);
  options.weight_cache = "/nowhere/cache";
  EXPECT_EQ(LanguageModel::load("", options).error().where, "--weight-cache");
  options = with_layers(2);
  options.isa = "scalar";
  EXPECT_EQ(LanguageModel::load("", options).error().where, "--isa");
  options = with_layers(2);
  options.device = "no such card";
  EXPECT_EQ(LanguageModel::load("", options).error().where, "--device");
}

TEST(GpuLayersElsewhere, OtherBackendsDoNotReadIt) {
  LoadOptions options = with_layers(2);
  options.backend = "cpu";
  const auto refused = LanguageModel::load("", options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().where, "--gpu-layers");
  if (has_vulkan()) {
    EXPECT_EQ(refused.error().hint, "add --backend vulkan");
  }
  EXPECT_EQ(LoadOptions().set("-ngl", "-1").error().code, ErrorCode::kUsage);
  LoadOptions named;
  ASSERT_TRUE(named.set("-ngl", "7"));
  EXPECT_EQ(named.backend_options.at("gpu_layers"), OptionValue(std::int64_t{7}));
}

}  // namespace
}  // namespace dllm
