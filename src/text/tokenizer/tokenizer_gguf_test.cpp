#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/testing/test_data.h"
#include "text/tokenizer/presets.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {
namespace {

TokenizerSpec tiny_gguf_spec() {
  auto spec = Tokenizer::spec_from_hf(test::testdata("tokenizer.json"), test::testdata("tokenizer_config.json"));
  EXPECT_TRUE(spec.has_value()) << spec.error().message();
  return spec ? *spec : TokenizerSpec{};
}

Metadata tiny_metadata() {
  Metadata metadata;
  EXPECT_TRUE(Tokenizer::spec_to_gguf(tiny_gguf_spec(), metadata).has_value());
  return metadata;
}

void expect_same(const TokenizerSpec& a, const TokenizerSpec& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.kinds, b.kinds);
  EXPECT_EQ(a.merges, b.merges);
  EXPECT_EQ(a.patterns, b.patterns);
  EXPECT_EQ(a.pre_name, b.pre_name);
  EXPECT_EQ(a.nfc, b.nfc);
  EXPECT_EQ(a.ignore_merges, b.ignore_merges);
  EXPECT_EQ(a.add_prefix_space, b.add_prefix_space);
  EXPECT_EQ(a.add_bos, b.add_bos);
  EXPECT_EQ(a.add_eos, b.add_eos);
  for (const auto id : {&TokenizerSpec::bos, &TokenizerSpec::eos, &TokenizerSpec::eot, &TokenizerSpec::pad,
                        &TokenizerSpec::mask, &TokenizerSpec::unk}) {
    EXPECT_EQ(a.*id, b.*id);
  }
}

TEST(TokenizerGguf, SpecSurvivesTheFile) {
  TokenizerSpec spec = tiny_gguf_spec();
  const auto survives = [&] {
    Metadata metadata;
    ASSERT_TRUE(Tokenizer::spec_to_gguf(spec, metadata).has_value());
    const auto read = Tokenizer::spec_from_gguf(metadata);
    ASSERT_TRUE(read.has_value()) << read.error().message();
    expect_same(*read, spec);
  };
  survives();
  EXPECT_EQ(spec.pre_name, "bailingmoe");
  spec.add_bos = true;
  spec.nfc = true;
  spec.ignore_merges = true;
  survives();
  spec.patterns = {"[a-z]+", "\\p{N}"};  // no preset: the patterns themselves go into the file
  spec.pre_name.clear();
  spec.add_prefix_space = true;
  survives();
  spec.pre_name = "qwen2";  // contradicts the patterns, which win
  Metadata named;
  ASSERT_TRUE(Tokenizer::spec_to_gguf(spec, named).has_value());
  EXPECT_EQ(Tokenizer::spec_from_gguf(named)->patterns, spec.patterns);
  spec.rules.assign(2, {SplitBehavior::kRemoved, false});
  Metadata metadata;
  EXPECT_FALSE(Tokenizer::spec_to_gguf(spec, metadata).has_value());
}

TEST(TokenizerGguf, EveryPresetAndAliasIsKnown) {
  const std::vector<std::string> names = Tokenizer::preset_names();
  for (const char* wanted : {"llada",        "llada-moe",      "bailingmoe",  "bailingmoe2",
                             "qwen2",        "llama-bpe",      "llama3",      "llama-v3",
                             "tekken",       "gpt-2",          "default",     "smollm",
                             "deepseek-llm", "deepseek-coder", "deepseek-v3", "deepseek-r1-qwen",
                             "qwen35",       "gpt-4o",         "hunyuan",     "hunyuan-dense",
                             "seed-coder",   "kimi-k2",        "falcon",      "falcon3",
                             "mpt",          "starcoder",      "refact",      "command-r",
                             "olmo",         "dbrx",           "smaug-bpe",   "poro-chat",
                             "glm4",         "glm5",           "chatglm-bpe", "falcon-h1",
                             "viking",       "jais",           "jais-2",      "codeshell",
                             "bloom",        "gpt3-finnish",   "exaone",      "exaone4",
                             "exaone-moe",   "chameleon",      "minerva-7b",  "megrez",
                             "llama4",       "superbpe",       "trillion",    "granite-docling",
                             "joyai-llm",    "grok-2",         "afmoe",       "laguna",
                             "minimax-m2",   "solar-open",     "minicpm5",    "youtu",
                             "tiny_aya",     "stablelm2",      "phi-2",       "pixtral",
                             "lfm2",         "midm-2.0",       "kormo",       "gigachat",
                             "a.x-4.0"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), wanted), names.end()) << wanted;
  }
  for (const std::string& name : names) {
    Metadata metadata = tiny_metadata();
    metadata.set("tokenizer.ggml.pre", MetaValue::string(name));
    const auto spec = Tokenizer::spec_from_gguf(metadata);
    ASSERT_TRUE(spec.has_value()) << name;
    const auto tokenizer = Tokenizer::create(*spec);
    ASSERT_TRUE(tokenizer.has_value()) << name << ": " << tokenizer.error().message();
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("It's 2024,\n\n  ok", false), false), "It's 2024,\n\n  ok");
    EXPECT_TRUE(has_patterns(*find_preset(spec->pre_name), spec->patterns)) << name;
    Metadata again;
    ASSERT_TRUE(Tokenizer::spec_to_gguf(*spec, again)) << name;
    EXPECT_EQ(Tokenizer::spec_from_gguf(again)->pre_name, spec->pre_name);
  }
}

TEST(TokenizerGguf, PresetsBringTheirDefaults) {
  Metadata metadata = tiny_metadata();
  metadata.erase("tokenizer.ggml.add_bos_token");
  metadata.set("tokenizer.ggml.pre", MetaValue::string("llama-bpe"));
  EXPECT_TRUE(Tokenizer::spec_from_gguf(metadata)->add_bos);
  EXPECT_TRUE(Tokenizer::spec_from_gguf(metadata)->ignore_merges);
  metadata.set("tokenizer.ggml.pre", MetaValue::string("qwen2"));
  EXPECT_FALSE(Tokenizer::spec_from_gguf(metadata)->add_bos);
  EXPECT_TRUE(Tokenizer::spec_from_gguf(metadata)->nfc);
  metadata.erase("tokenizer.ggml.pre");
  EXPECT_EQ(Tokenizer::spec_from_gguf(metadata)->pre_name, "default");
}

TEST(TokenizerGguf, OptionalKeys) {
  Metadata metadata = tiny_metadata();
  metadata.erase("tokenizer.ggml.eot_token_id");
  EXPECT_EQ(Tokenizer::spec_from_gguf(metadata)->eot, 766);  // guessed by its text
  metadata.set("tokenizer.ggml.bos_token_id", MetaValue::u32(0xFFFFFFFF));
  EXPECT_EQ(Tokenizer::spec_from_gguf(metadata)->bos, std::nullopt);
  metadata.erase("tokenizer.ggml.token_type");
  EXPECT_EQ(Tokenizer::spec_from_gguf(metadata)->kinds[765], TokenKind::kNormal);
  EXPECT_EQ(Tokenizer::spec_from_gguf(metadata)->kinds[766], TokenKind::kControl);  // its role decides
}

TEST(TokenizerGguf, Errors) {
  const auto refuse = [](const char* key, MetaValue value, ErrorCode code, const char* mention) {
    Metadata metadata = tiny_metadata();
    metadata.set(key, std::move(value));
    const auto spec = Tokenizer::spec_from_gguf(metadata);
    ASSERT_FALSE(spec.has_value()) << key;
    EXPECT_EQ(spec.error().code, code) << spec.error().message();
    EXPECT_NE(spec.error().message().find(mention), std::string::npos) << spec.error().message();
  };
  refuse("tokenizer.ggml.model", MetaValue::string("llama"), ErrorCode::kUnsupported, "llama");
  refuse("tokenizer.ggml.pre", MetaValue::string("martian"), ErrorCode::kUnsupported, "bailingmoe, ");
  refuse("tokenizer.ggml.mask_token_id", MetaValue::u32(768), ErrorCode::kInvalidFile, "mask_token_id");
  refuse("tokenizer.ggml.token_type", MetaValue::i32s({9}), ErrorCode::kInvalidFile, "unknown type 9");
  refuse("tokenizer.ggml.tokens", MetaValue::u32(1), ErrorCode::kInvalidFile, "tokenizer.ggml.tokens");
  EXPECT_FALSE(Tokenizer::spec_from_gguf(Metadata()).has_value());
  Metadata metadata = tiny_metadata();
  metadata.erase("tokenizer.ggml.tokens");
  EXPECT_FALSE(Tokenizer::spec_from_gguf(metadata).has_value());
}

}  // namespace
}  // namespace dllm
