// Models of DMax: a LLaDA2 by its class, recognized by its name, whose committed tokens are read as mixtures. Whole
// answers are those of its own loop, written a second time (golden/models/dmax.py).
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "dllm/model.h"
#include "golden_model.h"
#include "model/model.h"

namespace dllm {
namespace {

using nlohmann::json;
using test::GoldenModel;

GoldenModel named(const std::string& repository, float head) {
  return GoldenModel("llada2", [&](test::HfCheckpoint& checkpoint) {
    checkpoint.config["_name_or_path"] = repository;
    std::string& bytes = checkpoint.find("lm_head.weight")->bytes;
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, bytes.data() + at, sizeof(float));
      value *= head;
      std::memcpy(bytes.data() + at, &value, sizeof(float));
    }
  });
}

TEST(DmaxModel, AnswersAreThoseOfItsOwnLoop) {
  const json golden = json::parse(test::read_file(std::string(test::kGoldenModels) + "dmax.json"));
  const GoldenModel model = named("Zigeng/DMax-Math-16B", golden["head"].get<float>());
  LoadOptions load;
  load.threads = 2;
  load.cache_type = "f32";
  int compared = 0;
  for (const std::string& path : {model.path(), model.write_gguf("F32")}) {
    const auto loaded = LanguageModel::load(path, load);
    ASSERT_TRUE(loaded) << loaded.error().message();
    for (const json& decode : golden["decodes"]) {
      GenerateOptions options;
      options.length = golden["length"].get<std::int32_t>();
      options.exact_length = true;
      options.decoder.options = {{"threshold", decode["threshold"].get<double>()},
                                 {"mixed_tokens", decode["mixed"].get<std::int64_t>()}};
      EXPECT_EQ(loaded->resolve(options)->decoder.name, "dmax");
      for (const json& run : decode["runs"]) {
        const auto answer = loaded->generate_ids(run["prompt_ids"].get<std::vector<std::int32_t>>(), options);
        ASSERT_TRUE(answer) << answer.error().message();
        EXPECT_EQ(answer->ids, run["output_ids"].get<std::vector<std::int32_t>>()) << decode["threshold"];
        EXPECT_EQ(answer->stats.nfe, run["nfe"].get<int>()) << decode["threshold"];
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 24);
}

TEST(DmaxModel, IsRecognizedByItsName) {
  for (const auto& [name, decoder, threshold] :
       {std::tuple("Zigeng/DMax-16B", "dmax", 0.5), std::tuple("dmaxwell/LLaDA2.0-mini", "threshold", 0.9)}) {
    const GoldenModel model = named(name, 1);
    EXPECT_EQ((*Model::load(model.path()))->desc().soft_tokens, std::string(decoder) == "dmax");
    const auto loaded = LanguageModel::load(model.write_gguf("Q8_0"));
    ASSERT_TRUE(loaded) << loaded.error().message();
    const auto resolved = loaded->resolve({});
    EXPECT_EQ(resolved->decoder.name, decoder);
    EXPECT_EQ(resolved->decoder.options.at("threshold"), OptionValue(threshold));
  }
}

}  // namespace
}  // namespace dllm
