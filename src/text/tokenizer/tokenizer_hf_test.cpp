#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/testing/test_data.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {
namespace {

using Json = nlohmann::json;

Json tiny_json() { return Json::parse(test::testdata("tokenizer.json"), nullptr, false); }

Expected<TokenizerSpec> read(const Json& root, const Json& config = Json::object()) {
  return Tokenizer::spec_from_hf(root.dump(), config.dump());
}

// Recorded by testdata/make_tokenizer_cases.py: tokenizer.json unchanged, and with parts replaced.
Json make_variant(const Json& variant) {
  Json root = tiny_json();
  for (const auto& [key, value] : variant["change"].items()) root[key] = value;
  if (variant["name"] == "ignore merges") root["model"]["ignore_merges"] = true;
  if (variant["name"] == "pairs") {
    for (Json& merge : root["model"]["merges"]) {
      const auto text = merge.get<std::string>();
      const std::size_t space = text.find(' ');
      merge = Json::array({text.substr(0, space), text.substr(space + 1)});
    }
  }
  return root;
}

TEST(TokenizerHf, EncodesAsHuggingFace) {
  const Json recorded = Json::parse(test::testdata("tokenizer_cases.json"), nullptr, false);
  ASSERT_TRUE(recorded.is_object());
  std::size_t compared = 0;
  for (const Json& variant : recorded["variants"]) {
    const auto name = variant["name"].get<std::string>();
    auto spec = read(make_variant(variant));
    ASSERT_TRUE(spec.has_value()) << name << ": " << spec.error().message();
    auto tokenizer = Tokenizer::create(*spec);
    ASSERT_TRUE(tokenizer.has_value()) << name << ": " << tokenizer.error().message();
    for (const Json& recorded_case : variant["cases"]) {
      const auto text = recorded_case[0].get<std::string>();
      const auto ids = recorded_case[1].get<std::vector<TokenId>>();
      EXPECT_EQ(tokenizer->encode(text, true), ids) << name << ": '" << text << "'";
      // Hugging Face decodes added tokens through the byte alphabet, which breaks those beyond ASCII; we do not.
      const auto decoded = recorded_case[2].get<std::string>();
      if (decoded.find("\uFFFD") == std::string::npos) {
        EXPECT_EQ(tokenizer->decode(ids, true), decoded) << name;
      }
      ++compared;
    }
  }
  EXPECT_GE(compared, 800U);
}

TEST(TokenizerHf, ReadsTheConfig) {
  const auto spec = Tokenizer::spec_from_hf(test::testdata("tokenizer.json"), test::testdata("tokenizer_config.json"));
  ASSERT_TRUE(spec.has_value()) << spec.error().message();
  EXPECT_EQ(spec->tokens.size(), 768U);
  EXPECT_EQ(spec->bos, 762);
  EXPECT_EQ(spec->eos, 763);
  EXPECT_EQ(spec->pad, 763);
  EXPECT_EQ(spec->eot, 766);
  EXPECT_EQ(spec->mask, 767);
  EXPECT_EQ(spec->unk, std::nullopt);
  EXPECT_EQ(spec->pre_name, "bailingmoe");
  EXPECT_FALSE(spec->add_bos);
  EXPECT_EQ(spec->kinds[767], TokenKind::kControl);
  EXPECT_EQ(spec->kinds[0], TokenKind::kNormal);
}

TEST(TokenizerHf, TokensMayBeObjects) {
  const auto spec = read(tiny_json(), {{"bos_token", {{"content", "<|startoftext|>"}}}, {"eos_token", nullptr}});
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->bos, 762);
  EXPECT_EQ(spec->eos, std::nullopt);
  EXPECT_EQ(read(tiny_json(), {{"bos_token", "<nowhere>"}})->bos, 768);
}

TEST(TokenizerHf, TemplateProcessingAddsBosAndEos) {
  Json root = tiny_json();
  const auto special = [](const char* text) { return Json{{"SpecialToken", {{"id", text}, {"type_id", 0}}}}; };
  const Json sequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json processor = {
      {"type", "TemplateProcessing"},
      {"single", {special("<|startoftext|>"), sequence, special("<|endoftext|>")}},
      {"special_tokens", {{"<|startoftext|>", {{"ids", {762}}}}, {"<|endoftext|>", {{"ids", {763}}}}}}};
  root["post_processor"] = {{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, processor}}};
  const auto spec = read(root);
  ASSERT_TRUE(spec.has_value()) << spec.error().message();
  EXPECT_TRUE(spec->add_bos && spec->add_eos);
  EXPECT_EQ(spec->bos, 762);
  EXPECT_EQ(spec->eos, 763);
  EXPECT_FALSE(read(root, {{"add_bos_token", false}})->add_bos);  // the config takes precedence
  EXPECT_EQ(read(root, {{"bos_token", "<|eot_id|>"}}).error().code, ErrorCode::kUnsupported);
}

TEST(TokenizerHf, HolesBecomeUnusedTokens) {
  Json root = tiny_json();
  root["added_tokens"].push_back({{"id", 771}, {"content", "<extra>"}, {"special", true}});
  const auto spec = read(root);
  ASSERT_TRUE(spec.has_value());
  ASSERT_EQ(spec->tokens.size(), 772U);
  EXPECT_EQ(spec->tokens[769], "[PAD769]");
  EXPECT_EQ(spec->kinds[769], TokenKind::kUnused);
  const auto tokenizer = Tokenizer::create(*spec);
  ASSERT_TRUE(tokenizer.has_value());
  EXPECT_EQ(tokenizer->bytes(769), "");
  EXPECT_EQ(tokenizer->find("[PAD769]"), std::nullopt);
  EXPECT_EQ(tokenizer->find("<extra>"), 771);
}

TEST(TokenizerHf, ConfigExtendsAddedTokens) {
  const Json token = {{"content", "<new>"}, {"special", false}};
  const auto spec = read(tiny_json(), {{"added_tokens_decoder", {{"768", token}}}});
  ASSERT_TRUE(spec.has_value()) << spec.error().message();
  EXPECT_EQ(spec->tokens[768], "<new>");
  EXPECT_EQ(spec->kinds[768], TokenKind::kUserDefined);
  EXPECT_FALSE(read(tiny_json(), {{"added_tokens_decoder", {{"767", token}}}}).has_value());  // another text there
  EXPECT_FALSE(read(tiny_json(), {{"added_tokens_decoder", {{"5", token}}}}).has_value());
  EXPECT_FALSE(read(tiny_json(), {{"added_tokens_decoder", {{"x", token}}}}).has_value());
}

// Recorded by testdata/character_tokenizer.py.
TEST(TokenizerHf, VocabulariesOfCharactersFallBackToBytes) {
  const Json recorded = Json::parse(test::testdata("character_tokenizer.json"), nullptr, false);
  const auto spec = read(recorded["tokenizer"]);
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_TRUE(spec->characters);
  EXPECT_EQ(spec->kinds[6], TokenKind::kByte);
  Metadata metadata;
  ASSERT_TRUE(Tokenizer::spec_to_gguf(*spec, metadata));
  EXPECT_EQ(**metadata.string("tokenizer.ggml.model"), "gemma4");
  const auto stored = Tokenizer::spec_from_gguf(metadata);
  ASSERT_TRUE(stored) << stored.error().message();
  for (const TokenizerSpec& one : {*spec, *stored}) {
    const auto tokenizer = Tokenizer::create(one);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message();
    for (const Json& recorded_case : recorded["cases"]) {
      const auto text = recorded_case["text"].get<std::string>();
      const auto ids = recorded_case["ids"].get<std::vector<TokenId>>();
      EXPECT_EQ(tokenizer->encode(text, true), ids) << text;
      EXPECT_EQ(tokenizer->decode(ids, true), recorded_case["decoded"].get<std::string>()) << text;
    }
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("\xff\x80 the", false), false), "\xff\x80 the");
    EXPECT_EQ(tokenizer->bytes(tokenizer->find(" the").value_or(-1)), " the");
    EXPECT_EQ(tokenizer->bytes(6), std::string_view("\0", 1));
  }
  const auto refused = [&](const char* pointer, const Json& value) {
    Json root = recorded["tokenizer"];
    root[Json::json_pointer(pointer)] = value;
    const auto other = read(root);
    return !other && other.error().code == ErrorCode::kUnsupported;
  };
  EXPECT_TRUE(refused("/normalizer", nullptr));
  EXPECT_TRUE(refused("/normalizer/content", "_"));
  EXPECT_TRUE(refused("/pre_tokenizer/pattern/String", "a"));
  EXPECT_TRUE(refused("/decoder", {{"type", "ByteLevel"}}));
  TokenizerSpec short_of_bytes = *spec;
  short_of_bytes.tokens[7] = "<byte>";
  EXPECT_FALSE(Tokenizer::create(std::move(short_of_bytes)));
}

struct BadCase {
  const char* pointer;  // JSON pointer to replace
  Json value;
  ErrorCode code;
  const char* mention;
};

TEST(TokenizerHf, NamesWhatItCannotDo) {
  const Json split = {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Sideways"}};
  const std::vector<BadCase> cases = {
      {"/model/byte_fallback", true, ErrorCode::kUnsupported, "byte_fallback"},
      {"/model/type", "Unigram", ErrorCode::kUnsupported, "Unigram"},
      {"/model/dropout", 0.1, ErrorCode::kUnsupported, "dropout"},
      {"/model/end_of_word_suffix", "</w>", ErrorCode::kUnsupported, "end_of_word_suffix"},
      {"/normalizer", {{"type", "NFKC"}}, ErrorCode::kUnsupported, "NFKC"},
      {"/normalizer",
       {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}},
       ErrorCode::kUnsupported,
       "Lowercase"},
      {"/pre_tokenizer", nullptr, ErrorCode::kUnsupported, "ByteLevel"},
      {"/pre_tokenizer", {{"type", "Metaspace"}}, ErrorCode::kUnsupported, "Metaspace"},
      {"/pre_tokenizer", split, ErrorCode::kUnsupported, "Sideways"},
      {"/decoder", {{"type", "Metaspace"}}, ErrorCode::kUnsupported, "Metaspace"},
      {"/post_processor", {{"type", "BertProcessing"}}, ErrorCode::kUnsupported, "BertProcessing"},
      {"/added_tokens/0/single_word", true, ErrorCode::kUnsupported, "single_word"},
      {"/added_tokens/0/content", "", ErrorCode::kInvalidFile, "762"},
      {"/added_tokens/0/id", 763, ErrorCode::kInvalidFile, "763"},
      {"/added_tokens/0/id", -1, ErrorCode::kInvalidFile, "id"},
      {"/added_tokens/0/id", 1e9, ErrorCode::kInvalidFile, "id"},
      {"/added_tokens/0/id", 3, ErrorCode::kInvalidFile, "id 3"},
      {"/model/vocab/!", 1, ErrorCode::kInvalidFile, "id 1"},
      {"/model/vocab/!", 99999999999LL, ErrorCode::kInvalidFile, "'!'"},
      {"/model/merges", {{"a", "b", "c"}}, ErrorCode::kInvalidFile, "merge 0"},
      {"/model/merges", nullptr, ErrorCode::kInvalidFile, "merges"},
      {"/model/vocab", nullptr, ErrorCode::kInvalidFile, "vocab"},
      {"/model", 3, ErrorCode::kInvalidFile, "model"},
  };
  for (const BadCase& bad : cases) {
    Json root = tiny_json();
    root[Json::json_pointer(bad.pointer)] = bad.value;
    const auto spec = read(root);
    ASSERT_FALSE(spec.has_value()) << bad.pointer << " = " << bad.value;
    EXPECT_EQ(spec.error().code, bad.code) << bad.pointer << ": " << spec.error().message();
    EXPECT_NE(spec.error().message().find(bad.mention), std::string::npos) << spec.error().message();
  }
  for (const char* text : {"", "[]", "{", "{\"model\":", "null", "\xFF"}) {
    EXPECT_FALSE(Tokenizer::spec_from_hf(text, "").has_value()) << text;
  }
  EXPECT_FALSE(Tokenizer::spec_from_hf(tiny_json().dump(), "[1]").has_value());
}

TEST(TokenizerHf, CreateRefusesContradictions) {
  const auto good = read(tiny_json());
  ASSERT_TRUE(good.has_value());
  const auto refuse = [&](auto change, const char* mention) {
    TokenizerSpec spec = *good;
    change(spec);
    const auto tokenizer = Tokenizer::create(std::move(spec));
    ASSERT_FALSE(tokenizer.has_value()) << mention;
    EXPECT_NE(tokenizer.error().message().find(mention), std::string::npos) << tokenizer.error().message();
  };
  refuse([](TokenizerSpec& s) { s.merges.push_back("a nowhere"); }, "a nowhere");
  refuse([](TokenizerSpec& s) { s.merges.push_back("! \""); }, "makes a token");
  refuse([](TokenizerSpec& s) { s.merges.push_back("ab"); }, "'ab'");
  refuse([](TokenizerSpec& s) { s.merges.push_back("a b c"); }, "a b c");
  refuse([](TokenizerSpec& s) { s.tokens[5] = s.tokens[6]; }, "tokens 5 and 6");
  refuse([](TokenizerSpec& s) { s.mask = 768; }, "mask token id 768");
  refuse([](TokenizerSpec& s) { s.bos = -1; }, "bos token id -1");
  refuse([](TokenizerSpec& s) { s.bos.reset(), s.add_bos = true; }, "add_bos");
  refuse([](TokenizerSpec& s) { s.kinds.pop_back(); }, "token types");
  refuse([](TokenizerSpec& s) { s.kinds[3] = TokenKind::kByte; }, "byte-fallback");
  refuse([](TokenizerSpec& s) { s.patterns = {"ok", "a(b"}; }, "'a(b' has a group without end at offset 3");
  refuse([](TokenizerSpec& s) { s.rules.resize(5); }, "split rules");
  refuse([](TokenizerSpec& s) { s = {}; }, "empty");
}

}  // namespace
}  // namespace dllm
