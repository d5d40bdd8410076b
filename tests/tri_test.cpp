// The trained model of several modes against an independent implementation (PyTorch, float32, without a cache), and the
// property of self-speculation on it: the words of autoregression for any width, greedy and sampled.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "dllm/model.h"
#include "model/source.h"
#include "model/testing/hf_directory.h"
#include "quant/convert.h"
#include "shared_data.h"

namespace dllm {
namespace {

using nlohmann::json;

const std::string kModel = DLLM_SOURCE_DIR "/models/tri-f16.gguf";
const std::string kAdapter = DLLM_SOURCE_DIR "/models/tri-draft-lora.gguf";

#ifdef DLLM_SANITIZED
constexpr bool kSanitizedRun = true;  // thirty times slower
#else
constexpr bool kSanitizedRun = false;
#endif

std::shared_ptr<const LanguageModel> tri(bool adapted, const std::string& cache_type) {
  LoadOptions options;
  options.cache_type = cache_type;
  if (adapted) options.lora_draft = {kAdapter};
  auto model = LanguageModel::load(kModel, options);
  if (!model) return ADD_FAILURE() << model.error().message(), nullptr;
  return std::make_shared<const LanguageModel>(std::move(*model));
}

class TriGolden : public ::testing::TestWithParam<const char*> {};

/// A run whose closest decision is narrower than float32 resolves may decide otherwise with another order of additions.
TEST_P(TriGolden, TokensOrderAndPassesAreTheRecordedOnes) {
  const std::string name = GetParam();
  const json file = json::parse(test::read_file(DLLM_SOURCE_DIR "/tests/golden/tri/decode_" + name + ".json"));
  const auto model = tri(name == "adapter", "f32");  // K/V of an F16 model are F16 by default, but not in PyTorch
  ASSERT_TRUE(model);
  GenerateOptions options;
  options.length = file["gen_length"].get<std::int32_t>();
  options.mode.name = file["mode"].get<std::string>();
  ASSERT_EQ(file["runs"].size(), 10u);
  int compared = 0;
  for (std::size_t i = 0; i < file["runs"].size(); i += kSanitizedRun ? 10 : 1) {
    const json& run = file["runs"][i];
    const auto result = model->generate_ids(run["prompt_ids"].get<std::vector<std::int32_t>>(), options);
    ASSERT_TRUE(result) << result.error().message();
    EXPECT_EQ(result->text, run["text"].get<std::string>());
    if (run["margin"].get<double>() < 1e-4) continue;
    ++compared;
    const auto ids = run["output_ids"].get<std::vector<std::int32_t>>();
    const auto steps = run["commit_step"].get<std::vector<std::int32_t>>();
    ASSERT_EQ(static_cast<std::size_t>(result->stats.answer_tokens), ids.size());
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), result->ids.begin()));
    EXPECT_TRUE(std::equal(steps.begin(), steps.end(), result->commit_step.begin()));
    EXPECT_EQ(result->stats.nfe, run["nfe"].get<int>());
    EXPECT_EQ(result->stats.rounds, run["rounds"].get<int>());
  }
  EXPECT_GE(compared, kSanitizedRun ? 1 : 7);
}

INSTANTIATE_TEST_SUITE_P(Modes, TriGolden, ::testing::Values("ar", "self-speculation", "adapter", "diffusion"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::erase(name, '-');
                           return name;
                         });

/// Held-out prompts, tasks in rotation.
std::vector<std::vector<ChatTurn>> tri_prompts(std::size_t count) {
  std::istringstream lines(test::read_file(DLLM_SOURCE_DIR "/research/lab/items/harder-publish.jsonl"));
  std::vector<std::vector<ChatTurn>> prompts;
  for (std::string line; prompts.size() < count && std::getline(lines, line);)
    prompts.push_back({{"user", json::parse(line)["prompt"].get<std::string>()}});
  EXPECT_EQ(prompts.size(), count);
  return prompts;
}

/// Which widths a prompt is drafted with, and how many prompts there are. By hand: DLLM_TRI_PROMPTS=1000 takes widths
/// from 2 to 32, and DLLM_TRI_SHARE=5 a fifth of the prompts for each, so that every prompt has six of them.
struct Extent {
  std::size_t prompts = kSanitizedRun ? 1 : 2;
  std::vector<std::int64_t> widths =
      kSanitizedRun ? std::vector<std::int64_t>{7, 16} : std::vector<std::int64_t>{2, 7, 16, 32};
  std::size_t share = 1;

  Extent() {
    const char *asked = std::getenv("DLLM_TRI_PROMPTS"), *part = std::getenv("DLLM_TRI_SHARE");
    if (asked == nullptr) return;
    prompts = static_cast<std::size_t>(std::max(1, std::atoi(asked)));
    if (part != nullptr) share = static_cast<std::size_t>(std::max(1, std::atoi(part)));
    widths.resize(31);
    std::iota(widths.begin(), widths.end(), 2);
  }
  bool takes(std::size_t prompt, std::int64_t width) const {
    return prompt % share == static_cast<std::size_t>(width) % share;
  }
};

GenerateOptions tri_options(const std::string& mode, double temperature) {
  GenerateOptions options;
  options.length = kSanitizedRun ? 48 : 192;
  options.mode.name = mode;
  options.temperature = temperature;
  options.seed = 7;
  return options;
}

/// Answers of the prompts that a width takes; the others stay empty.
std::vector<Generation> answers_of(const LanguageModel& model, const std::vector<std::vector<ChatTurn>>& prompts,
                                   const GenerateOptions& options, const std::function<bool(std::size_t)>& takes) {
  std::vector<std::vector<ChatTurn>> taken;
  for (std::size_t i = 0; i < prompts.size(); ++i)
    if (takes(i)) taken.push_back(prompts[i]);
  auto made = model.generate_batch(taken, options, /*batch=*/16);
  EXPECT_TRUE(made) << made.error().message();
  std::vector<Generation> answers(prompts.size());
  for (std::size_t i = 0, next = 0; made && i < prompts.size(); ++i)
    if (takes(i)) answers[i] = std::move((*made)[next++]);
  return answers;
}

/// Odd widths with the adapter, even ones without: it changes drafts, and no answer.
TEST(TriSpeculation, SaysWhatAutoregressionSays) {
  const Extent extent;
  const auto prompts = tri_prompts(extent.prompts);
  const auto plain = tri(false, ""), adapted = tri(true, "");
  ASSERT_TRUE(plain && adapted);
  std::int64_t rounds = 0, tokens = 0, compared = 0;
  for (const double temperature : {0.0, 0.8}) {
    const auto ar = answers_of(*plain, prompts, tri_options("ar", temperature), [](std::size_t) { return true; });
    for (const std::int64_t width : extent.widths) {
      GenerateOptions options = tri_options("self-speculation", temperature);
      options.mode.options = {{"draft_min", width}, {"draft_max", width}};
      const auto takes = [&](std::size_t i) { return extent.takes(i, width); };
      const auto drafted = answers_of(width % 2 == 0 ? *plain : *adapted, prompts, options, takes);
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        if (!takes(i)) continue;
        ASSERT_EQ(drafted[i].ids, ar[i].ids) << prompts[i][0].content << ", width " << width;
        rounds += drafted[i].stats.rounds, tokens += drafted[i].stats.round_tokens, ++compared;
      }
    }
  }
  std::printf("%lld answers, %.2f tokens per round\n", static_cast<long long>(compared),
              static_cast<double>(tokens) / static_cast<double>(rounds));
  EXPECT_GT(tokens, 2 * rounds) << "a trained model's drafts are right more often than not";
}

/// The model as a file of this type; without a head, it predicts the same token everywhere.
std::string copy_of_tri(const test::TempDirectory& directory, const std::string& type, bool head) {
  auto source = open_source(kModel);
  std::vector<std::byte> zeros;
  for (SourceTensor& tensor : source->tensors)
    if (!head && tensor.name == "output.weight") {
      zeros.resize(tensor.data.size());
      tensor.data = zeros;
      tensor.mapped = false;
    }
  WriteOptions options;
  options.type = type;
  const std::string path = directory.file(type + (head ? ".gguf" : "-zeros.gguf"));
  const auto written = write_model(*source, options, path);
  EXPECT_TRUE(written) << written.error().message();
  return path;
}

TEST(TriSpeculation, AnotherModelMayDraft) {
  const test::TempDirectory directory;
  const auto prompts = tri_prompts(kSanitizedRun ? 1 : 4);
  const auto all = [](std::size_t) { return true; };
  const auto plain = tri(false, "");
  ASSERT_TRUE(plain);
  for (const double temperature : {0.0, 0.8}) {
    const auto ar = answers_of(*plain, prompts, tri_options("ar", temperature), all);
    for (const bool head : {true, false}) {
      LoadOptions load;
      load.draft_model = copy_of_tri(directory, head ? "Q4_0" : "F16", head);
      const auto model = LanguageModel::load(kModel, load);
      ASSERT_TRUE(model) << model.error().message();
      const auto drafted = answers_of(*model, prompts, tri_options("self-speculation", temperature), all);
      std::int64_t rounds = 0, tokens = 0;
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_EQ(drafted[i].ids, ar[i].ids) << prompts[i][0].content;
        rounds += drafted[i].stats.rounds, tokens += drafted[i].stats.round_tokens;
      }
      if (head) {
        EXPECT_GT(tokens, 4 * rounds);
      } else if (temperature == 0) {
        EXPECT_LT(tokens, 2 * rounds) << "nothing is learnt from a head of zeros";
      }
    }
  }
}

TEST(TriSpeculation, OnlyTheSameNetworkDrafts) {
  const auto error = [](const std::string& model, const std::string& drafts, const std::string& numerics = "") {
    LoadOptions load;
    load.draft_model = drafts;
    load.numerics = numerics;
    const auto loaded = LanguageModel::load(model, load);
    return loaded ? std::string() : loaded.error().message();
  };
  const std::string llada = DLLM_SOURCE_DIR "/models/harder-llada-f16.gguf";
  EXPECT_NE(error("", kModel).find("makes no drafts"), std::string::npos);
  EXPECT_NE(error(kModel, llada).find("cannot draft for"), std::string::npos);
  EXPECT_NE(error(kModel, kModel, "bf16").find("--draft-model"), std::string::npos);
  EXPECT_NE(error(kModel, "nowhere.gguf").find("nowhere.gguf"), std::string::npos);
  EXPECT_EQ(error(kModel, kModel), "");
}

}  // namespace
}  // namespace dllm
