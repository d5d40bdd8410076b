#include "text/tokenizer/roles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/testing/test_data.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {
namespace {

using Json = nlohmann::json;

TokenizerSpec role_spec() {
  return *Tokenizer::spec_from_hf(test::testdata("tokenizer.json"), test::testdata("tokenizer_config.json"));
}

Metadata with_kind(TokenId id, TokenKind kind, const char* role) {
  TokenizerSpec spec = role_spec();
  spec.kinds[static_cast<std::size_t>(id)] = kind;
  Metadata metadata;
  EXPECT_TRUE(Tokenizer::spec_to_gguf(spec, metadata));
  if (role != nullptr) {
    metadata.set(std::string("tokenizer.ggml.") + role + "_token_id", MetaValue::u32(static_cast<std::uint32_t>(id)));
  }
  return metadata;
}

TEST(TokenRoles, DecideAgainstTheKind) {
  for (const char* role : {"bos", "eos", "eot", "eom", "padding", "mask", "fim_pre"}) {
    for (const TokenKind kind : {TokenKind::kNormal, TokenKind::kUnknown, TokenKind::kUnused}) {
      const auto spec = Tokenizer::spec_from_gguf(with_kind(766, kind, role));
      ASSERT_TRUE(spec.has_value()) << spec.error().message();
      EXPECT_EQ(spec->kinds[766], TokenKind::kControl) << role;
      ASSERT_EQ(spec->warnings.size(), 1U) << role;
      EXPECT_NE(spec->warnings[0].find("<|eot_id|>"), std::string::npos);
    }
  }
  const auto tokenizer = Tokenizer::create(*Tokenizer::spec_from_gguf(with_kind(766, TokenKind::kNormal, "eot")));
  ASSERT_TRUE(tokenizer.has_value());
  EXPECT_EQ(tokenizer->encode("a<|eot_id|>b", true), (std::vector<TokenId>{64, 766, 65}));
  EXPECT_GT(tokenizer->encode("a<|eot_id|>b", false).size(), 3U);
}

TEST(TokenRoles, TheUsualNameOfAnEndOfTurnCounts) {
  Metadata metadata = with_kind(766, TokenKind::kNormal, nullptr);
  Metadata without;
  for (const auto& [key, value] : metadata.entries())
    if (key != "tokenizer.ggml.eot_token_id") without.set(key, value);
  const auto spec = Tokenizer::spec_from_gguf(without);
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->eot, 766);
  EXPECT_EQ(spec->kinds[766], TokenKind::kControl);
}

// A newline that ends answers is still a newline, and so is a word that BPE makes.
TEST(TokenRoles, WordsStayWords) {
  TokenizerSpec spec = role_spec();
  const TokenId letter = 5, word = 300;
  ASSERT_TRUE(is_word(spec, letter));
  ASSERT_TRUE(is_word(spec, word)) << spec.tokens[300];
  ASSERT_FALSE(is_word(spec, 766));
  spec.eos = letter;
  spec.pad = word;
  settle_roles(spec);
  EXPECT_EQ(spec.kinds[5], TokenKind::kNormal);
  EXPECT_EQ(spec.kinds[300], TokenKind::kNormal);
  EXPECT_TRUE(spec.warnings.empty());
}

// A list of ids may be as long as the vocabulary; then words are known by an index.
TEST(TokenRoles, ManyRolesAreSettledLikeFew) {
  TokenizerSpec many = role_spec(), few = many;
  std::vector<TokenRole> roles;
  for (TokenId id = 0; id < static_cast<TokenId>(many.tokens.size()); ++id) roles.push_back({"eos", id});
  for (std::vector<TokenKind>* kinds : {&many.kinds, &few.kinds}) std::ranges::fill(*kinds, TokenKind::kNormal);
  settle_roles(many, roles);
  for (const TokenRole& role : roles) settle_roles(few, {&role, 1});
  EXPECT_EQ(many.kinds, few.kinds);
  EXPECT_EQ(many.warnings, few.warnings);
  EXPECT_EQ(many.kinds[5], TokenKind::kNormal);
  EXPECT_EQ(many.kinds[300], TokenKind::kNormal);
  EXPECT_EQ(many.kinds[766], TokenKind::kControl);
}

TEST(TokenRoles, ManyNamesAreFoundLikeFew) {
  TokenizerSpec many = role_spec(), few = many;
  many.kinds[300] = few.kinds[300] = TokenKind::kUnused;
  NamedSpecials indexed(many, 1000), searched(few, 1);
  const std::string unused = many.tokens[300], word = many.tokens[301];
  for (const std::string& text :
       {std::string("<|eot_id|>"), word, unused, std::string("new"), std::string("new"), word}) {
    EXPECT_EQ(indexed.find(text), searched.find(text)) << text;
    EXPECT_EQ(indexed.add(text, "bos"), searched.add(text, "bos")) << text;
    EXPECT_EQ(indexed.find(text), searched.find(text)) << text;
  }
  EXPECT_EQ(many.tokens, few.tokens);
  EXPECT_EQ(many.kinds, few.kinds);
  EXPECT_EQ(many.appended, 2);
}

TEST(TokenRoles, UserDefinedTokensStay) {
  const auto spec = Tokenizer::spec_from_gguf(with_kind(766, TokenKind::kUserDefined, "eot"));
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->kinds[766], TokenKind::kUserDefined);
}

/// tokenizer.json with <|eot_id|> as an ordinary word, as files of slow tokenizers have it.
std::string without_added(const std::string& text) {
  Json root = Json::parse(test::testdata("tokenizer.json"), nullptr, false);
  Json kept = Json::array();
  for (const Json& token : root["added_tokens"]) {
    if (token["content"] != text) {
      kept.push_back(token);
    } else {
      root["model"]["vocab"][text] = token["id"];
    }
  }
  root["added_tokens"] = kept;
  return root.dump();
}

TEST(TokenRoles, NamesInTheConfigMakeSpecial) {
  const std::string text = "<|eot_id|>", root = without_added(text);
  const Json configs[] = {{{"additional_special_tokens", {text}}},
                          {{"additional_special_tokens", {{{"content", text}, {"lstrip", false}}}}},
                          {{"extra_special_tokens", {{"turn_token", text}}}},
                          {{"bos_token", text}},
                          {{"eos_token", {{"content", text}}}},
                          {{"sep_token", text}}};
  for (const Json& config : configs) {
    for (const bool in_map : {false, true}) {
      const auto spec =
          in_map ? Tokenizer::spec_from_hf(root, "{}", config.dump()) : Tokenizer::spec_from_hf(root, config.dump());
      ASSERT_TRUE(spec.has_value()) << spec.error().message();
      EXPECT_EQ(spec->kinds[766], TokenKind::kControl) << config;
      EXPECT_EQ(spec->warnings.size(), 1U) << config;
    }
  }
  const auto plain = Tokenizer::spec_from_hf(root, "{}");
  EXPECT_EQ(plain->kinds[766], TokenKind::kNormal);
}

TEST(TokenRoles, TheConfigIsAskedBeforeTheMap) {
  const auto spec = Tokenizer::spec_from_hf(test::testdata("tokenizer.json"), R"({"eos_token": "<|eot_id|>"})",
                                            R"({"eos_token": "<|endoftext|>", "bos_token": "<|startoftext|>"})");
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->eos, 766);
  EXPECT_EQ(spec->bos, 762);
}

TEST(TokenRoles, NamesOutsideTheVocabularyGetTheNextIds) {
  const auto spec = Tokenizer::spec_from_hf(test::testdata("tokenizer.json"),
                                            R"({"pad_token": "<pad>", "additional_special_tokens": ["<a>", "<pad>"]})");
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->pad, 768);
  EXPECT_EQ(spec->tokens.size(), 770U);
  EXPECT_EQ(spec->tokens[769], "<a>");
  EXPECT_EQ(spec->appended, 2);
}

TEST(MissingBytes, AreLeftOutOrUnknown) {
  Json root = Json::parse(test::testdata("tokenizer.json"), nullptr, false);
  // Without the letter z, and the merges that need it.
  Json vocabulary = Json::object(), merges = Json::array();
  for (const auto& [text, id] : root["model"]["vocab"].items())
    if (text.find('z') == std::string::npos) vocabulary[text] = id;
  for (const Json& merge : root["model"]["merges"])
    if (merge.dump().find('z') == std::string::npos) merges.push_back(merge);
  root["model"]["vocab"] = vocabulary;
  root["model"]["merges"] = merges;
  const auto dropping = Tokenizer::create(*Tokenizer::spec_from_hf(root.dump(), ""));
  ASSERT_TRUE(dropping.has_value()) << dropping.error().message();
  EXPECT_EQ(dropping->missing_bytes(), "z");
  ASSERT_EQ(dropping->spec().warnings.size(), 1U);
  EXPECT_NE(dropping->spec().warnings[0].find("1 bytes (7A)"), std::string::npos) << dropping->spec().warnings[0];
  // The letters around it become neighbours, as in Hugging Face's BPE.
  EXPECT_EQ(dropping->encode("tzhze", false), dropping->encode("the", false));
  EXPECT_EQ(dropping->encode("zz", false), std::vector<TokenId>());

  root["model"]["unk_token"] = "!";
  const auto marking = Tokenizer::create(*Tokenizer::spec_from_hf(root.dump(), ""));
  ASSERT_TRUE(marking.has_value());
  const TokenId unknown = *marking->spec().unknown_byte;
  EXPECT_EQ(marking->encode("zz", false), (std::vector<TokenId>{unknown, unknown}));
  root["model"]["fuse_unk"] = true;
  TokenizerSpec spec = *Tokenizer::spec_from_hf(root.dump(), "");
  EXPECT_EQ(Tokenizer::create(spec)->encode("zz", false), std::vector<TokenId>{unknown});
  Metadata metadata;
  ASSERT_TRUE(Tokenizer::spec_to_gguf(spec, metadata));
  EXPECT_EQ(Tokenizer::create(*Tokenizer::spec_from_gguf(metadata))->encode("zz", false),
            std::vector<TokenId>{unknown});
}

}  // namespace
}  // namespace dllm
