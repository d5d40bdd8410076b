// Models in types of few bits: their answers and logits are the recorded ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "dllm/model.h"
#include "model/source.h"
#include "model/testing/hf_directory.h"
#include "quant/convert.h"

namespace dllm {
namespace {

constexpr const char* kPrompt = "Calc 4 a*2 b*4 c+2 d*4 e*2 f+1 g-1 h*4 i+4";

struct Recorded {
  const char* type;
  const char* mix;       ///< of the whole file
  std::uint64_t answer;  ///< FNV-1a over the tokens and the passes in which they were committed
  std::uint64_t logits;  ///< FNV-1a over the floats' bytes
};

void PrintTo(const Recorded& recorded, std::ostream* out) { *out << recorded.mix; }

class SmallTypes : public testing::TestWithParam<Recorded> {};

// Recorded with the scalar set. Every matrix of the harder model is in the type ("pure"), or in those of the mix.
INSTANTIATE_TEST_SUITE_P(Types, SmallTypes,
                         testing::Values(Recorded{"Q2_K", "pure", 0x2e0a16d4ab7edeec, 0x2bd231b8d3141146},
                                         Recorded{"Q3_K", "pure", 0x39f1e65e4bd77fa2, 0x7b63d0b10e25ffb8},
                                         Recorded{"IQ4_NL", "pure", 0x5a66f947c7ebdd4e, 0x2c710fc4ed6b719d},
                                         Recorded{"IQ4_XS", "pure", 0xd8c0ad8297f4acbc, 0xa6f93da959a7d3a3},
                                         Recorded{"Q3_K_M", "mix", 0x9c565f1070d799, 0x15e7d4a15f6ac9ae}),
                         [](const auto& each) { return fmt::format("{}_{}", each.param.type, each.param.mix); });

TEST_P(SmallTypes, AnswersAndLogitsAreTheRecordedOnes) {
  const auto source = open_source(DLLM_SOURCE_DIR "/models/harder-llada-f16.gguf");
  ASSERT_TRUE(source) << source.error().message();
  const test::TempDirectory directory;
  const std::string path = directory.file("small.gguf");
  WriteOptions writing{.type = GetParam().type};
  writing.recipe.pure = std::string_view(GetParam().mix) == "pure";
  const auto written = write_model(*source, writing, path);
  ASSERT_TRUE(written) << written.error().message();
  GenerateOptions options;
  options.length = 64;
  options.block_length = 32;
  options.exact_length = true;
  options.decoder.name = "threshold";
  options.decoder.options["threshold"] = 0.9;
  int sets = 0;
  for (const char* isa : {"avx2", "avx512", "neon"}) {  // kernels.selftest compares all sets
    LoadOptions loading;
    loading.isa = isa;
    loading.threads = 2;
    const auto model = LanguageModel::load(path, loading);
    if (!model) continue;  // not on this processor
    ++sets;
    const auto answer = model->generate(kPrompt, options);
    ASSERT_TRUE(answer) << answer.error().message();
    Fnv1a decode;
    for (std::size_t i = 0; i < answer->ids.size(); ++i)
      decode.add_word(static_cast<std::uint32_t>(answer->ids[i]))
          .add_word(static_cast<std::uint32_t>(answer->commit_step[i]));
    EXPECT_EQ(decode.value(), GetParam().answer) << isa << fmt::format(": {:#x}, ", decode.value()) << answer->text;
    std::vector<std::int32_t> ids = answer->ids;
    const auto logits = model->logits(ids, false);
    ASSERT_TRUE(logits) << logits.error().message();
    const std::uint64_t hash = Fnv1a().add(std::as_bytes(std::span(*logits))).value();
    EXPECT_EQ(hash, GetParam().logits) << isa << fmt::format(": {:#x}", hash);
  }
  EXPECT_GE(sets, 1);
}

}  // namespace
}  // namespace dllm
