// Models that read tokens in an order of their own against independent forward passes and samplers written a second
// time (numpy, float64; golden/models/ordered.py, which compares them with the models' public code): logits and whole
// answers, from the Hugging Face folder and from the GGUF made of it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "dllm/model.h"
#include "golden_model.h"
#include "model/model.h"

namespace dllm {
namespace {

using nlohmann::json;
using test::GoldenModel;

class OrderedModels : public ::testing::TestWithParam<const char*> {
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
    if (decode.contains("window")) options.window.name = decode["window"].get<std::string>();
    if (decode.contains("block")) options.block_length = decode["block"].get<std::int32_t>();
    if (decode.contains("decoder")) options.decoder.name = decode["decoder"].get<std::string>();
    if (decode.contains("threshold")) options.decoder.options["threshold"] = decode["threshold"].get<double>();
    if (decode.contains("mode")) options.mode.name = decode["mode"].get<std::string>();
    OptionMap& own = decode.contains("mode") ? options.mode.options : options.decoder.options;
    if (decode.contains("options"))
      for (const auto& [key, value] : decode["options"].items())
        own[key] =
            value.is_number_integer() ? OptionValue(value.get<std::int64_t>()) : OptionValue(value.get<double>());
    return options;
  }
};

TEST_P(OrderedModels, LogitsAreTheReferences) {
  const GoldenModel golden(GetParam());
  for (const std::string& path : {golden.path(), golden.write_gguf("F32")}) {
    const auto logits = load(path).logits(golden.ids(), false);
    ASSERT_TRUE(logits) << logits.error().message();
    EXPECT_LT(test::deviation(*logits, golden.logits()), 1e-4);
  }
}

TEST_P(OrderedModels, AnswersAreTheReferences) {
  const GoldenModel golden(GetParam());
  int compared = 0;
  for (const std::string& path : {golden.path(), golden.write_gguf("F32")}) {
    const LanguageModel model = load(path);
    for (const json& decode : golden.description()["decodes"])
      for (const char* cache : {"", "none"}) {
        if (*cache != '\0' && decode.contains("mode")) continue;  // a loop of its own
        GenerateOptions options = options_of(golden.description(), decode);
        options.cache.name = cache;
        const std::string what = decode.dump().substr(0, 60) + ' ' + cache;
        for (const json& run : decode["runs"]) {
          const auto result = model.generate_ids(run["prompt_ids"].get<std::vector<std::int32_t>>(), options);
          ASSERT_TRUE(result) << result.error().message();
          EXPECT_EQ(result->ids, run["output_ids"].get<std::vector<std::int32_t>>()) << what;
          EXPECT_EQ(result->stats.nfe, run["nfe"].get<int>()) << what;
          ++compared;
        }
      }
  }
  EXPECT_GE(compared, 16);
}

INSTANTIATE_TEST_SUITE_P(Models, OrderedModels, ::testing::Values("wedlm", "wedlm-qwen2", "idlm", "refusion"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace dllm
