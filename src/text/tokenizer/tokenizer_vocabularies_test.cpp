// Published vocabularies, which are not part of the repository: without the shared data these tests are skipped.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "text/testing/test_data.h"
#include "text/tokenizer/hf_vocabulary.h"
#include "text/tokenizer/presets.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {
namespace {

using Json = nlohmann::json;

// vocab.json + merges.txt, as Hugging Face's slow tokenizers store them.
TokenizerSpec slow_spec(const std::string& vocabulary, const std::string& merges, const char* preset) {
  Json root = {{"model", {{"type", "BPE"}, {"vocab", Json::parse(vocabulary)}, {"merges", Json::array()}}},
               {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}}};
  std::istringstream lines(merges);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && !line.starts_with("#version")) root["model"]["merges"].push_back(line);
  }
  auto spec = Tokenizer::spec_from_hf(root.dump(), "");
  EXPECT_TRUE(spec.has_value()) << spec.error().message();
  spec->patterns = find_preset(preset)->patterns;
  spec->nfc = find_preset(preset)->nfc;
  return *spec;
}

// llama.cpp's test files: texts between lines `__ggml_vocab_test__`, and one line of ids for each.
void run_llama_cases(const Tokenizer& tokenizer, const std::string& texts, const std::string& ids) {
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::istringstream lines(ids);
  std::size_t count = 0;
  for (std::size_t begin = 0; begin <= texts.size(); ++count) {
    const std::size_t end = std::min(texts.find(separator, begin), texts.size());
    const std::string text = texts.substr(begin, end - begin);
    begin = end + separator.size();
    std::string line;
    if (!std::getline(lines, line)) break;
    std::istringstream numbers(line);
    std::vector<TokenId> expected;
    for (TokenId id = 0; numbers >> id;) expected.push_back(id);
    EXPECT_EQ(tokenizer.encode(text, false), expected) << "'" << text << "'";
    EXPECT_EQ(tokenizer.decode(expected, false), text);
  }
  EXPECT_GE(count, 46U);
}

void run_recorded_cases(const Tokenizer& tokenizer, const char* name) {
  const Json recorded = Json::parse(test::testdata("shared_vocabulary_cases.json"), nullptr, false);
  ASSERT_GE(recorded[name].size(), 200U);
  for (const Json& recorded_case : recorded[name]) {
    const auto text = recorded_case[0].get<std::string>();
    EXPECT_EQ(tokenizer.encode(text, true), recorded_case[1].get<std::vector<TokenId>>()) << "'" << text << "'";
  }
}

TEST(Vocabularies, Gpt2) {
  const auto file = test::shared_data("tokenizers/gpt2/ggml-vocab-gpt-2.gguf");
  const auto texts = test::shared_data("tokenizers/gpt2/ggml-vocab-gpt-2.gguf.inp");
  const auto ids = test::shared_data("tokenizers/gpt2/ggml-vocab-gpt-2.gguf.out");
  DLLM_SKIP_WITHOUT(file);
  const auto gguf = GgufFile::parse(MappedFile::wrap(std::as_bytes(std::span(*file)), "gpt-2"));
  ASSERT_TRUE(gguf.has_value()) << gguf.error().message();
  const auto spec = Tokenizer::spec_from_gguf(gguf->metadata());
  ASSERT_TRUE(spec.has_value()) << spec.error().message();
  EXPECT_EQ(spec->pre_name, "gpt-2");
  const auto tokenizer = Tokenizer::create(*spec);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message();
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
  run_llama_cases(*tokenizer, *texts, *ids);
}

TEST(Vocabularies, Qwen) {
  const auto vocabulary = test::shared_data("tokenizers/qwen3-sdar/vocab.json");
  const auto merges = test::shared_data("tokenizers/qwen3-sdar/merges.txt");
  const auto config = test::shared_data("tokenizers/qwen3-sdar/tokenizer_config.json");
  const auto texts = test::shared_data("tokenizers/gpt2/ggml-vocab-qwen2.gguf.inp");
  const auto ids = test::shared_data("tokenizers/gpt2/ggml-vocab-qwen2.gguf.out");
  DLLM_SKIP_WITHOUT(vocabulary);
  auto made = spec_from_hf_vocabulary({*vocabulary, *merges, "", "", *config});
  ASSERT_TRUE(made.has_value()) << made.error().message();
  TokenizerSpec spec = *std::move(made);
  EXPECT_EQ(spec.pre_name, "qwen2");
  const auto tokenizer = Tokenizer::create(spec);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message();
  EXPECT_EQ(tokenizer->find("<|MASK|>"), 151669);
  EXPECT_EQ(tokenizer->find("<|im_end|>"), 151645);
  run_recorded_cases(*tokenizer, "qwen3-sdar");
  spec.nfc = false;  // llama.cpp does not normalise
  const auto plain = Tokenizer::create(spec);
  ASSERT_TRUE(plain.has_value());
  run_llama_cases(*plain, *texts, *ids);
}

TEST(Vocabularies, Llada) {
  const auto vocabulary = test::shared_data("tokenizers/ling/vocab.json");
  const auto merges = test::shared_data("tokenizers/ling/ling_merges.txt");
  DLLM_SKIP_WITHOUT(vocabulary);
  const auto tokenizer = Tokenizer::create(slow_spec(*vocabulary, *merges, "llada"));
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message();
  const std::vector<TokenId> expected = {86059, 560,  2001, 220,   16,  17,   44137, 854, 6984, 352,   220,  19,
                                         3871,  13,   4474, 378,   11,  1285, 9660,  220, 21,   44137, 854,  6984,
                                         13,    2071, 1494, 44137, 560, 1285, 2001,  296, 220,  23,    3871, 30};
  EXPECT_EQ(tokenizer->encode("Lily can run 12 kilometers per hour for 4 hours. After that, she runs 6 kilometers per "
                              "hour. How many kilometers can she run in 8 hours?",
                              false),
            expected);
  run_recorded_cases(*tokenizer, "ling");
}

}  // namespace
}  // namespace dllm
