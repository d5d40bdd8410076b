// The Vulkan backend under the engine: the embedded model's logits and answers have the bits of the CPU backend's.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/temp_dir.h"
#include "cpu/cpu_backend.h"
#include "decode/registry.h"
#include "dllm/model.h"
#include "dllm/options.h"
#include "engine/generate.h"
#include "engine/load.h"
#include "engine/resolve.h"
#include "model/model.h"
#include "quant/convert.h"
#include "random_model.h"
#include "vulkan/vulkan_backend.h"

namespace dllm {
namespace {

constexpr const char* kQuestion = "Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?";

const CpuOptions one_thread = [] {
  CpuOptions options;
  options.threads = 1;
  return options;
}();

class VulkanAnswers : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_vulkan()) GTEST_SKIP() << vulkan_missing();
    const auto devices = vulkan_devices();
    if (!devices || devices->empty()) GTEST_SKIP() << "this machine has no Vulkan device";
  }
};

LoadOptions on(const char* backend) {
  LoadOptions options;
  options.backend = backend;
  options.threads = 1;
  return options;
}

/// The embedded model with all matrices in a type.
std::string write_as(const test::TempDir& directory, const char* type) {
  const auto source = open_or_embedded("");
  EXPECT_TRUE(source);
  WriteOptions options;
  options.type = type;
  options.recipe.pure = true;
  const std::string path = directory / type;
  const auto written = write_model(*source, options, path);
  EXPECT_TRUE(written) << written.error().message();
  return path;
}

GenerateOptions short_answer() {
  GenerateOptions options;
  options.length = 32;
  return options;
}

void expect_equal(const Generation& actual, const Generation& expected) {
  EXPECT_EQ(actual.text, expected.text);
  EXPECT_EQ(actual.hash, expected.hash);
  EXPECT_EQ(actual.confidence, expected.confidence);
  EXPECT_EQ(actual.commit_step, expected.commit_step);
  EXPECT_EQ(actual.stats.nfe, expected.stats.nfe);
}

TEST_F(VulkanAnswers, LogitsAndAnswersOfTheEmbeddedModel) {
  const test::TempDir directory;
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 66; ++i) ids.push_back((i * 37 + i % 5) % 700);
  for (const char* type : {"F32", "Q8_0", "Q4_0"}) {
    SCOPED_TRACE(type);
    const std::string path = std::string(type) == "F32" ? "" : write_as(directory, type);
    const auto here = LanguageModel::load(path, on("cpu")), there = LanguageModel::load(path, on("vulkan"));
    ASSERT_TRUE(here && there) << (there ? "" : there.error().message());
    const auto expected = here->logits(ids, false), actual = there->logits(ids, false);
    ASSERT_TRUE(expected && actual) << actual.error().message();
    ASSERT_EQ(actual->size(), expected->size());
    EXPECT_EQ(std::memcmp(actual->data(), expected->data(), expected->size() * sizeof(float)), 0);

    const auto answer = here->generate(kQuestion, short_answer()), same = there->generate(kQuestion, short_answer());
    ASSERT_TRUE(answer && same) << same.error().message();
    expect_equal(*same, *answer);
    EXPECT_NE(answer->text.find("12"), std::string::npos) << answer->text;
  }
}

TEST_F(VulkanAnswers, CachesDrawsGuidanceAndBatches) {
  const test::TempDir directory;
  const std::string path = write_as(directory, "Q8_0");
  const auto here = LanguageModel::load(path, on("cpu")), there = LanguageModel::load(path, on("vulkan"));
  ASSERT_TRUE(here && there);
  GenerateOptions cached = short_answer(), drawn = short_answer(), guided = short_answer();
  cached.cache.name = "dual";
  cached.block_length = 16;
  drawn.temperature = 0.8;
  drawn.top_p = 0.9;
  drawn.seed = 11;
  guided.length = 16;
  guided.cfg_scale = 0.5;
  for (const GenerateOptions& options : {cached, drawn, guided}) {
    const auto answer = here->generate(kQuestion, options), same = there->generate(kQuestion, options);
    ASSERT_TRUE(answer && same) << same.error().message();
    expect_equal(*same, *answer);
  }
  const std::vector<std::vector<ChatTurn>> questions = {{{"user", kQuestion}}, {{"user", "Solve 7+5."}}};
  const auto answers = here->generate_batch(questions, cached, 2), same = there->generate_batch(questions, cached, 2);
  ASSERT_TRUE(answers && same);
  for (std::size_t i = 0; i < questions.size(); ++i) expect_equal((*same)[i], (*answers)[i]);
}

/// Shadow rows and branches, in a batch.
TEST_F(VulkanAnswers, OfDecodersWithRowsOfTheirOwn) {
  const test::TempDir directory;
  const std::string path = write_as(directory, "Q4_0");
  const auto here = LanguageModel::load(path, on("cpu")), there = LanguageModel::load(path, on("vulkan"));
  ASSERT_TRUE(here && there);
  const std::vector<std::vector<ChatTurn>> questions = {{{"user", "Solve 7+5."}},
                                                        {{"user", "Sort these words: pear fig"}}};
  for (const char* decoder : {"wino", "cover", "freedave", "order-token"}) {
    SCOPED_TRACE(decoder);
    GenerateOptions how;
    how.length = 16;
    how.decoder.name = decoder;
    if (std::string(decoder) == "freedave") how.cache.name = "dual";
    const auto expected = here->generate_batch(questions, how, 2), actual = there->generate_batch(questions, how, 2);
    ASSERT_TRUE(expected && actual) << actual.error().message();
    for (std::size_t i = 0; i < questions.size(); ++i) {
      expect_equal((*actual)[i], (*expected)[i]);
      EXPECT_EQ((*actual)[i].stats.rows_forwarded, (*expected)[i].stats.rows_forwarded);
    }
  }
}

/// A short answer by every decoder, cache policy, window and suffix of the registry. Those that the embedded model
/// cannot have are refused alike.
TEST_F(VulkanAnswers, EveryMethod) {
  const test::TempDir directory;
  const std::string path = write_as(directory, "Q4_0");
  const auto here = LanguageModel::load(path, on("cpu")), there = LanguageModel::load(path, on("vulkan"));
  ASSERT_TRUE(here && there);
  GenerateOptions short_one;
  short_one.length = 8;
  short_one.exact_length = true;
  std::vector<std::pair<std::string, GenerateOptions>> all;
  const auto add = [&](const auto& methods, MethodChoice GenerateOptions::* part) {
    for (const auto& method : methods) {
      GenerateOptions how = short_one;
      (how.*part).name = method.info.name;
      all.emplace_back(method.info.name, how);
    }
  };
  add(decoders(), &GenerateOptions::decoder);
  add(caches(), &GenerateOptions::cache);
  add(windows(), &GenerateOptions::window);
  add(suffixes(), &GenerateOptions::suffix);
#ifdef DLLM_SANITIZED
  constexpr std::size_t kStride = 5;  // a few methods make all accesses to memory that the backend has
#else
  constexpr std::size_t kStride = 1;
#endif
  int refused = 0;
  for (std::size_t i = 0; i < all.size(); i += kStride) {
    const auto& [name, how] = all[i];
    SCOPED_TRACE(name);
    const auto answer = here->generate("Sort these words: pear fig", how),
               same = there->generate("Sort these words: pear fig", how);
    ASSERT_EQ(same.has_value(), answer.has_value());
    if (answer) {
      expect_equal(*same, *answer);
    } else {
      ++refused;
      EXPECT_EQ(same.error().message(), answer.error().message());
    }
  }
  EXPECT_LE(refused, 6);
}

TEST_F(VulkanAnswers, AGenerationRecordsItsStepOnce) {
  auto source = open_or_embedded("");
  ASSERT_TRUE(source);
  const auto model = Model::load(std::move(*source));
  ASSERT_TRUE(model);
  const auto backend = make_vulkan_backend((*model)->desc(), [&](StepShape shape) { return (*model)->build(shape); },
                                           (*model)->weights(), {.device = "", .threads = 1, .validate = true});
  ASSERT_TRUE(backend) << backend.error().message();
  for (const char* cache : {"none", "dual"}) {
    GenerateOptions options = short_answer();
    options.cache.name = cache;
    options.block_length = 16;
    options.decoder.name = "low-confidence";
    options.decoder.options["steps"] = std::int64_t{4};
    options.exact_length = true;
    const auto resolved = resolve_options(options, (*model)->desc());
    ASSERT_TRUE(resolved);
    std::int64_t bytes = 0;
    const auto look = [&](const StepEvent&) {
      if (bytes == 0) bytes = (*backend)->device_bytes();
      return true;
    };
    const auto answer = generate({**backend}, {5, 17, 200, 9}, *resolved, {.on_step = look});
    ASSERT_TRUE(answer) << answer.error().message();
    EXPECT_GE(answer->stats.nfe, 4);
    EXPECT_GT(bytes, 0);
  }
  EXPECT_EQ((*backend)->recordings(), 1) << "two generations, and every pass of them replays one recording";
  EXPECT_EQ((*backend)->messages(), "");
}

/// Logits of a prompt and of a block over it, of random weights.
void expect_equal_logits(const test::RandomModel& spec) {
  SCOPED_TRACE(spec.architecture);
  SCOPED_TRACE(codec(spec.type).name);
  const auto model = *Model::load(test::random_source(spec));
  const auto build = [&](StepShape shape) { return model->build(shape); };
  const auto here = *CpuBackend::create(model->desc(), build, model->weights(), one_thread);
  const auto there = make_vulkan_backend(model->desc(), build, model->weights(), {.device = "", .threads = 1});
  ASSERT_TRUE(there) << there.error().message();
  const auto cache = *here->make_cache(64), other = *(*there)->make_cache(64);
  for (const auto& [begin, end] : {std::pair{0, 37}, {30, 41}}) {
    SequenceStep step;
    for (Position p = begin; p < end; ++p) {
      step.plan.rows.push_back({p, (p * 7 + 3) % 80});
      step.plan.scored.push_back(p - begin);
    }
    step.plan.visible = {{0, end}};
    step.plan.causal_block = model->desc().causal_block;
    step.request.logits = true;
    step.cache = cache.get();
    const auto expected = here->forward({&step, 1});
    step.cache = other.get();
    const auto actual = (*there)->forward({&step, 1});
    ASSERT_TRUE(expected && actual) << actual.error().message();
    const auto &a = (*actual)[0].logits, &e = (*expected)[0].logits;
    ASSERT_EQ(a.size(), e.size());
    EXPECT_EQ(std::memcmp(a.data(), e.data(), e.size() * sizeof(float)), 0) << end;
  }
}

TEST_F(VulkanAnswers, EveryArchitecture) {
  for (const TensorType type : {TensorType::kF32, TensorType::kQ8_0, TensorType::kQ4_0})
    for (const char* architecture : {"llada", "dream", "llama", "llada-moe", "llada2", "rnd1", "sdar", "sdar-moe",
                                     "fast-dllm-v2", "qwen2", "qwen3", "qwen3moe", "mdlm"}) {
      // The architectures differ in operators, and types in products: not all of their pairs are of interest.
      const bool moe = std::string(architecture).find("moe") != std::string::npos;
      if (type != TensorType::kF32 && !moe) continue;
      expect_equal_logits({.architecture = architecture, .kv_heads = 2, .type = type});
    }
}

/// Experts whose codes are places in a table, of three bits and of four.
TEST_F(VulkanAnswers, ExpertsOfListedTypes) {
  for (const TensorType type : {TensorType::kIQ2_XS, TensorType::kIQ3_S})
    expect_equal_logits({.architecture = "llada-moe",
                         .width = 256,
                         .layers = 1,
                         .heads = 4,
                         .kv_heads = 2,
                         .ffn_width = 256,
                         .type = type,
                         .experts = {.count = 4, .used = 2, .width = 256}});
}

/// --unroll.
TEST_F(VulkanAnswers, PassesInARow) {
  LoadOptions options = on("vulkan");
  options.backend_options["unroll"] = std::int64_t{8};
  const auto here = LanguageModel::load("", on("cpu")), there = LanguageModel::load("", options);
  ASSERT_TRUE(here);
  if (!there && there.error().code == ErrorCode::kUnsupported && there.error().where == "--unroll")
    GTEST_SKIP() << there.error().message();
  ASSERT_TRUE(there) << there.error().message();
  const std::vector<std::vector<ChatTurn>> questions = {{{"user", "Solve 7+5."}},
                                                        {{"user", "Sort these words: pear fig"}}};
  GenerateOptions how;
  how.length = 16;
  how.cache.name = "dual";
  const auto expected = here->generate_batch(questions, how, 2), actual = there->generate_batch(questions, how, 2);
  ASSERT_TRUE(expected && actual) << actual.error().message();
  for (std::size_t i = 0; i < questions.size(); ++i) expect_equal((*actual)[i], (*expected)[i]);
  ASSERT_TRUE(there->device_status());
  EXPECT_GT(there->device_status()->passes_ahead, 0);
  options.backend_options["gpu_layers"] = std::int64_t{1};
  EXPECT_EQ(LanguageModel::load("", options).error().where, "--unroll");
}

TEST_F(VulkanAnswers, OptionsThatItDoesNotReadAreErrors) {
  LoadOptions options = on("vulkan");
  options.isa = "scalar";
  EXPECT_EQ(LanguageModel::load("", options).error().where, "--isa");
  options = on("vulkan");
  options.arithmetic = "super";
  EXPECT_EQ(LanguageModel::load("", options).error().where, "--arithmetic");
  options.arithmetic = "f16";  // no device runs it for a model in F32
  EXPECT_EQ(LanguageModel::load("", options).error().where, "--arithmetic");
  options.backend_options["gpu_layers"] = std::int64_t{1};
  EXPECT_EQ(LanguageModel::load("", options).error().what, "f16 needs all layers on the GPU");
  options = on("cpu");
  options.arithmetic = "f16";
  EXPECT_EQ(LanguageModel::load("", options).error().what, "f16 needs the matrix units of a GPU");
  options = on("vulkan");
  options.device = "no such card";
  EXPECT_EQ(LanguageModel::load("", options).error().where, "--device");
  options = on("vulkan");
  options.backend_options["unroll"] = std::int64_t{0};
  EXPECT_EQ(LanguageModel::load("", options).error().where, "--unroll");
  options = on("cpu");
  options.device = "0";
  EXPECT_EQ(LanguageModel::load("", options).error().hint, "add --backend npu or --backend vulkan");
}

TEST(Vulkan, ABuildWithoutItSaysHowToGetIt) {
  if (has_vulkan()) GTEST_SKIP() << "this build has it";
  const auto refused = LanguageModel::load("", on("vulkan"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(refused.error().hint, "install libvulkan-dev and glslc, and build again");
}

}  // namespace
}  // namespace dllm
