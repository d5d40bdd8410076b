// Models derived from autoregressive ones against an independent forward pass and samplers written a second time
// (numpy, float64; golden/models/derived.py): whole answers, from the Hugging Face folder and from the GGUF made of it.
// Their logits are among those of models_test.cpp.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "dllm/model.h"
#include "golden_model.h"
#include "model/model.h"

namespace dllm {
namespace {

using nlohmann::json;
using test::GoldenModel;

class DerivedModels : public ::testing::TestWithParam<const char*> {
 protected:
  static LanguageModel load(const std::string& path) {
    LoadOptions options;
    options.threads = 2;
    options.cache_type = "f32";
    auto model = LanguageModel::load(path, options);
    if (!model) throw std::runtime_error(model.error().message());
    return *std::move(model);
  }

  static GenerateOptions options_of(const json& golden, const json& decode) {
    GenerateOptions options;
    options.length = golden["length"].get<std::int32_t>();
    options.exact_length = true;
    if (decode.contains("block")) options.block_length = decode["block"].get<std::int32_t>();
    options.decoder.name = decode["decoder"].get<std::string>();
    if (decode.contains("threshold")) options.decoder.options["threshold"] = decode["threshold"].get<double>();
    if (decode.contains("steps")) options.decoder.options["steps"] = decode["steps"].get<std::int64_t>();
    return options;
  }
};

TEST_P(DerivedModels, AnswersAreTheReferences) {
  const GoldenModel golden(GetParam());
  int compared = 0;
  for (const std::string& path : {golden.path(), golden.write_gguf("F32")}) {
    const LanguageModel model = load(path);
    for (const json& decode : golden.description()["decodes"]) {
      const GenerateOptions options = options_of(golden.description(), decode);
      for (const json& run : decode["runs"]) {
        const auto result = model.generate_ids(run["prompt_ids"].get<std::vector<std::int32_t>>(), options);
        ASSERT_TRUE(result) << result.error().message();
        EXPECT_EQ(result->ids, run["output_ids"].get<std::vector<std::int32_t>>()) << options.decoder.name;
        EXPECT_EQ(result->stats.nfe, run["nfe"].get<int>()) << options.decoder.name;
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 8);
}

INSTANTIATE_TEST_SUITE_P(Models, DerivedModels,
                         ::testing::Values("a2d-qwen3", "a2d-qwen3-bd3lm", "a2d-qwen2", "a2d-llama",
                                           "stable-diffcoder"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace dllm
