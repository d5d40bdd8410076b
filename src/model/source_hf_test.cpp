// Does a Hugging Face directory become the model that llama.cpp's converter would write?
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "model/model.h"
#include "model/source.h"
#include "model/testing/hf_directory.h"
#include "numerics/tensor_type.h"

namespace dllm {
namespace {

using test::HfCheckpoint;
using test::HfSpec;
using test::make_checkpoint;
using test::TempDirectory;
using test::tiny_value;

Expected<ModelSource> convert(const HfCheckpoint& checkpoint, const TempDirectory& directory, int shards = 1) {
  checkpoint.write(directory.path(), shards);
  return source_from_hf(directory.path());
}

ModelSource convert_ok(const HfCheckpoint& checkpoint, const TempDirectory& directory, int shards = 1) {
  auto source = convert(checkpoint, directory, shards);
  if (source) return *std::move(source);
  ADD_FAILURE() << source.error().message();
  return {};
}

std::vector<float> values_of(const ModelSource& source, const std::string& name) {
  const SourceTensor* tensor = source.find(name);
  if (tensor == nullptr) {
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }
  std::vector<std::byte> buffer;
  const auto bytes = tensor_bytes(*tensor, buffer);
  std::vector<float> values(static_cast<std::size_t>(element_count(tensor->shape)));
  codec(tensor->type).dequantize(bytes.data(), values.data(), element_count(tensor->shape));
  return values;
}

std::vector<float> hf_values(const std::string& name, std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(tiny_value(name, i));
  return values;
}

std::int64_t integer(const ModelSource& source, const std::string& key) {
  const auto value = source.metadata.integer(key);
  return value && *value ? **value : -1;
}

std::string text(const ModelSource& source, const std::string& key) {
  const auto value = source.metadata.string(key);
  return value && *value ? **value : "(none)";
}

TEST(SourceHf, NamesAndShapesOfLlada) {
  const TempDirectory directory;
  const ModelSource source = convert_ok(make_checkpoint({.kv_heads = 2}), directory);
  std::vector<std::string> names;
  for (const SourceTensor& tensor : source.tensors) names.push_back(tensor.name);
  const std::vector<std::string> expected = {
      "token_embd.weight",     "blk.0.attn_norm.weight",   "blk.0.attn_q.weight",      "blk.0.attn_k.weight",
      "blk.0.attn_v.weight",   "blk.0.attn_output.weight", "blk.0.ffn_norm.weight",    "blk.0.ffn_gate.weight",
      "blk.0.ffn_up.weight",   "blk.0.ffn_down.weight",    "blk.1.attn_norm.weight",   "blk.1.attn_q.weight",
      "blk.1.attn_k.weight",   "blk.1.attn_v.weight",      "blk.1.attn_output.weight", "blk.1.ffn_norm.weight",
      "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight",      "blk.1.ffn_down.weight",    "output_norm.weight",
      "output.weight"};
  EXPECT_EQ(names, expected);
  EXPECT_EQ(source.find("blk.0.attn_k.weight")->shape, (Shape{64, 32}));
  EXPECT_EQ(source.find("blk.0.ffn_down.weight")->shape, (Shape{96, 64}));
  EXPECT_EQ(source.find("token_embd.weight")->shape, (Shape{64, test::kTinyRows}));
  EXPECT_EQ(values_of(source, "blk.1.ffn_gate.weight"),
            hf_values("model.transformer.blocks.1.ff_proj.weight", 96 * 64));
}

TEST(SourceHf, MetadataOfLlada) {
  const TempDirectory directory;
  const ModelSource source = convert_ok(make_checkpoint({.kv_heads = 2}), directory);
  std::vector<std::string> keys;
  for (const auto& [key, value] : source.metadata.entries()) keys.push_back(key);
  const std::vector<std::string> head = {
      "general.architecture", "general.type",         "general.name",           "general.size_label",
      "llada.block_count",    "llada.context_length", "llada.embedding_length", "llada.feed_forward_length"};
  ASSERT_GE(keys.size(), head.size());
  EXPECT_TRUE(std::equal(head.begin(), head.end(), keys.begin()));
  EXPECT_EQ(text(source, "general.architecture"), "llada");
  EXPECT_EQ(text(source, "general.size_label"), "97K");
  EXPECT_EQ(integer(source, "general.quantization_version"), 2);
  EXPECT_EQ(integer(source, "general.file_type"), 0);
  EXPECT_EQ(integer(source, "llada.attention.head_count_kv"), 2);
  EXPECT_EQ(integer(source, "llada.vocab_size"), test::kTinyRows);
  EXPECT_EQ(integer(source, "llada.rope.dimension_count"), 16);
  EXPECT_EQ(source.metadata.find("llada.attention.causal")->payload, MetaValue::boolean(false).payload);
  EXPECT_EQ(source.metadata.find("diffusion.shift_logits")->payload, MetaValue::boolean(false).payload);
  EXPECT_EQ(text(source, "tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(text(source, "tokenizer.ggml.pre"), "bailingmoe");
  EXPECT_EQ(integer(source, "tokenizer.ggml.bos_token_id"), 257);
  EXPECT_EQ(integer(source, "tokenizer.ggml.eos_token_id"), 258);
  EXPECT_EQ(integer(source, "tokenizer.ggml.eot_token_id"), 259);
  EXPECT_EQ(integer(source, "tokenizer.ggml.padding_token_id"), 258);
  EXPECT_EQ(integer(source, "tokenizer.ggml.mask_token_id"), 260);
  EXPECT_EQ(source.metadata.find("tokenizer.ggml.add_bos_token")->payload, MetaValue::boolean(true).payload);
  EXPECT_EQ(text(source, "tokenizer.chat_template"), "{{ messages[0]['content'] }}");
}

TEST(SourceHf, GenerationConfigRecommendsLengths) {
  const TempDirectory directory;
  auto checkpoint = make_checkpoint({});
  checkpoint.generation_config = {{"gen_length", 96}, {"block_length", 16}};
  const ModelSource source = convert_ok(checkpoint, directory);
  EXPECT_EQ(integer(source, "dllm.canvas_length"), 96);
  EXPECT_EQ(integer(source, "diffusion.block_length"), 16);
}

TEST(SourceHf, VocabularyIsFilledUpToTheEmbedding) {
  const TempDirectory directory;
  const ModelSource source = convert_ok(make_checkpoint({}), directory);
  const auto tokens = source.metadata.strings("tokenizer.ggml.tokens");
  const auto kinds = source.metadata.integers("tokenizer.ggml.token_type");
  ASSERT_TRUE(tokens && *tokens && kinds && *kinds);
  ASSERT_EQ((*tokens)->size(), static_cast<std::size_t>(test::kTinyRows));
  EXPECT_EQ((**tokens)[261], "<|end_of_text|>");
  EXPECT_EQ((**kinds)[261], static_cast<int>(TokenKind::kControl));
  EXPECT_EQ((**tokens)[262], "[PAD262]");
  EXPECT_EQ((**kinds)[271], static_cast<int>(TokenKind::kUnused));
}

// Row 2j+i of a head in GGUF is row i*d/2+j in Hugging Face order; the heads of K are the fewer ones of GQA.
TEST(SourceHf, QAndKRowsAreInterleavedByHead) {
  const TempDirectory directory;
  const ModelSource source = convert_ok(make_checkpoint({.kv_heads = 2}), directory);
  for (const auto& [gguf, hf, heads] : {std::tuple("attn_q", "q_proj", 4), std::tuple("attn_k", "k_proj", 2)}) {
    const auto found = values_of(source, fmt::format("blk.1.{}.weight", gguf));
    const std::string name = fmt::format("model.transformer.blocks.1.{}.weight", hf);
    ASSERT_EQ(found.size(), static_cast<std::size_t>(heads * 16 * 64));
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t j = 0; j < 8; ++j)
        for (std::int64_t i = 0; i < 2; ++i)
          for (std::int64_t c : {0, 63})
            EXPECT_EQ(found[static_cast<std::size_t>((h * 16 + 2 * j + i) * 64 + c)],
                      tiny_value(name, (h * 16 + i * 8 + j) * 64 + c))
                << name << " head " << h << " pair " << j;
  }
  EXPECT_EQ(values_of(source, "blk.1.attn_v.weight"), hf_values("model.transformer.blocks.1.v_proj.weight", 32 * 64));
}

TEST(SourceHf, DreamHasBiasesAndKeepsItsRows) {
  const TempDirectory directory;
  const ModelSource source =
      convert_ok(make_checkpoint({.family = "dream", .dtype = "BF16", .kv_heads = 2}), directory);
  EXPECT_EQ(text(source, "general.architecture"), "dream");
  EXPECT_EQ(integer(source, "general.file_type"), 32);
  EXPECT_EQ(source.metadata.find("diffusion.shift_logits")->payload, MetaValue::boolean(true).payload);
  EXPECT_EQ(source.metadata.find("tokenizer.ggml.add_bos_token")->payload, MetaValue::boolean(false).payload);
  EXPECT_EQ(values_of(source, "blk.0.attn_q.weight"), hf_values("model.layers.0.self_attn.q_proj.weight", 64 * 64));
  EXPECT_EQ(values_of(source, "blk.1.attn_k.bias"), hf_values("model.layers.1.self_attn.k_proj.bias", 32));
  const auto model = Model::load(source);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ((*model)->desc().mask, 260);
  EXPECT_EQ((*model)->desc().logit_shift, 1);
  EXPECT_TRUE((*model)->desc().qkv_bias);
}

TEST(SourceHf, BiasesOfPermutedArchitecturesMoveWithTheirRows) {
  const TempDirectory directory;
  HfCheckpoint checkpoint = make_checkpoint({});
  const std::string name = "model.transformer.blocks.0.q_proj.bias";
  checkpoint.set(name, {64});
  const ModelSource source = convert_ok(checkpoint, directory);
  const auto found = values_of(source, "blk.0.attn_q.bias");
  ASSERT_EQ(found.size(), 64u);
  EXPECT_EQ(found[16 + 5], tiny_value(name, 16 + 8 + 2));
}

TEST(SourceHf, TiedHeadIsDropped) {
  for (const bool stored : {false, true}) {
    const TempDirectory directory;
    HfCheckpoint checkpoint = make_checkpoint({.family = "llama", .dtype = "F16", .tied = true});
    if (stored) {
      test::HfTensor head = *checkpoint.find("model.embed_tokens.weight");
      head.name = "lm_head.weight";
      checkpoint.tensors.push_back(head);
    }
    const ModelSource source = convert_ok(checkpoint, directory);
    EXPECT_EQ(source.find("output.weight"), nullptr);
    EXPECT_EQ(integer(source, "general.file_type"), 1);
    EXPECT_EQ(integer(source, "tokenizer.ggml.mask_token_id"), -1);
    const auto model = Model::load(source);
    ASSERT_TRUE(model) << model.error().message();
    EXPECT_TRUE((*model)->desc().tied_embeddings);
    EXPECT_TRUE((*model)->desc().autoregressive());
  }
}

TEST(SourceHf, ShardsGiveTheSameModel) {
  const HfCheckpoint checkpoint = make_checkpoint({.kv_heads = 2});
  const TempDirectory whole, sharded;
  const ModelSource a = convert_ok(checkpoint, whole), b = convert_ok(checkpoint, sharded, 3);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_EQ(a.tensors[i].name, b.tensors[i].name);
    EXPECT_EQ(a.tensors[i].permute_heads, b.tensors[i].permute_heads);
    EXPECT_TRUE(std::ranges::equal(a.tensors[i].data, b.tensors[i].data)) << a.tensors[i].name;
  }
}

TEST(SourceHf, DirectoriesRunWithoutConversion) {
  const TempDirectory directory;
  make_checkpoint({.kv_heads = 2}).write(directory.path());
  const auto model = Model::load(directory.path());
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ((*model)->desc().kv_heads, 2);
  EXPECT_EQ((*model)->desc().vocab, test::kTinyRows);
  EXPECT_EQ((*model)->desc().stop_ids, (std::vector<TokenId>{258, 259}));
  EXPECT_NE((*model)->chat_template(), nullptr);
}

TEST(SourceHf, NameComesFromTheRepositoryOrTheDirectory) {
  HfCheckpoint checkpoint = make_checkpoint({});
  for (const auto& [origin, name] : {std::pair("GSAI-ML/LLaDA-8B-Instruct", "LLaDA-8B-Instruct"),
                                     std::pair("/home/someone/llada/", "llada"), std::pair("./", "")}) {
    const TempDirectory directory;
    checkpoint.config["_name_or_path"] = origin;
    const ModelSource source = convert_ok(checkpoint, directory);
    const std::string own = directory.path().substr(directory.path().rfind('/') + 1);
    EXPECT_EQ(text(source, "general.name"), *name ? name : own);
  }
}

TEST(SourceHf, TemplateFileWinsOverTokenizerConfig) {
  const TempDirectory directory;
  HfCheckpoint checkpoint = make_checkpoint({});
  checkpoint.chat_template_jinja = "from the file";
  EXPECT_EQ(text(convert_ok(checkpoint, directory), "tokenizer.chat_template"), "from the file");
}

TEST(SourceHf, DefaultOfSeveralTemplates) {
  const TempDirectory directory;
  HfCheckpoint checkpoint = make_checkpoint({});
  checkpoint.tokenizer_config["chat_template"] = {{{"name", "tool_use"}, {"template", "tools"}},
                                                  {{"name", "default"}, {"template", "plain"}}};
  const ModelSource source = convert_ok(checkpoint, directory);
  EXPECT_EQ(text(source, "tokenizer.chat_template"), "plain");
  EXPECT_EQ(text(source, "tokenizer.chat_template.tool_use"), "tools");
}

TEST(SourceHf, StopIdsOfAllFilesAreKept) {
  const TempDirectory directory;
  HfCheckpoint checkpoint = make_checkpoint({});
  checkpoint.config["eos_token_id"] = 258;
  checkpoint.generation_config = {{"eos_token_id", {258, 261}}};
  const ModelSource source = convert_ok(checkpoint, directory);
  EXPECT_EQ(integer(source, "tokenizer.ggml.eos_token_id"), 258);
  EXPECT_EQ(integer(source, "tokenizer.ggml.eot_token_id"), 259);  // by its text
  EXPECT_EQ(integer(source, "tokenizer.ggml.eom_token_id"), 261);
  const auto model = Model::load(source);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ((*model)->desc().stop_ids, (std::vector<TokenId>{258, 259, 261}));
}

TEST(SourceHf, MaskTokenIsFoundByItsTextWhereTheConfigIsSilent) {
  const TempDirectory directory;
  HfCheckpoint checkpoint = make_checkpoint({});
  checkpoint.config.erase("mask_token_id");
  EXPECT_EQ(integer(convert_ok(checkpoint, directory), "tokenizer.ggml.mask_token_id"), 260);
}

TEST(SourceHf, ModelTypeStandsInForAMissingArchitecture) {
  const TempDirectory directory;
  HfCheckpoint checkpoint = make_checkpoint({.family = "dream"});
  checkpoint.config.erase("architectures");
  EXPECT_EQ(text(convert_ok(checkpoint, directory), "general.architecture"), "dream");
}

TEST(SourceHf, DerivedBuffersAreIgnored) {
  const TempDirectory directory;
  HfCheckpoint checkpoint = make_checkpoint({.family = "llama"});
  checkpoint.set("model.layers.0.self_attn.rotary_emb.inv_freq", {8});
  EXPECT_EQ(convert_ok(checkpoint, directory).tensors.size(), 21u);
}

struct Damage {
  const char* name;
  std::function<void(HfCheckpoint&)> apply;
  ErrorCode code;
  const char* text;  ///< part of the message
};

const std::vector<Damage>& damages() {
  using enum ErrorCode;
  static const std::vector<Damage> all = {
      {"NoConfig", [](auto& c) { c.config = nullptr; }, kIo, "config.json"},
      {"ConfigIsNoObject", [](auto& c) { c.config = 7; }, kInvalidFile, "not a JSON object"},
      {"UnknownArchitecture", [](auto& c) { c.config["architectures"] = {"MambaForCausalLM"}; }, kUnsupported,
       "unknown model architecture 'MambaForCausalLM'"},
      {"NoArchitecture",
       [](auto& c) {
         c.config.erase("architectures");
         c.config.erase("model_type");
       },
       kInvalidFile, "neither 'architectures' nor 'model_type'"},
      {"MissingWidth", [](auto& c) { c.config.erase("d_model"); }, kInvalidFile, "'d_model' is missing"},
      {"Alibi", [](auto& c) { c.config["alibi"] = true; }, kUnsupported, "'alibi' is true"},
      {"WidthIsText", [](auto& c) { c.config["d_model"] = "64"; }, kInvalidFile, "wanted an integer"},
      {"WidthContradictsWeights", [](auto& c) { c.config["d_model"] = 128; }, kInvalidFile, "contradicts the metadata"},
      {"HeadsDoNotDivideRows", [](auto& c) { c.config["n_kv_heads"] = 3; }, kInvalidFile, "64 rows cannot be 3 heads"},
      {"TooManyLayers", [](auto& c) { c.config["n_layers"] = 1000000; }, kInvalidFile, "layers need more than"},
      {"OneLayerMissing", [](auto& c) { c.config["n_layers"] = 3; }, kInvalidFile, "blk.2.attn_norm.weight"},
      {"OneLayerTooMany", [](auto& c) { c.config["n_layers"] = 1; }, kUnsupported, "blk.1."},
      {"MissingTensor", [](auto& c) { c.erase("model.transformer.blocks.1.up_proj.weight"); }, kInvalidFile,
       "blk.1.ffn_up.weight: the tensor is missing"},
      {"MissingEmbedding", [](auto& c) { c.erase("model.transformer.wte.weight"); }, kInvalidFile,
       "no embedding matrix"},
      {"MissingHead", [](auto& c) { c.erase("model.transformer.ff_out.weight"); }, kInvalidFile, "the head is missing"},
      {"OtherHeadThanTied", [](auto& c) { c.config["weight_tying"] = true; }, kInvalidFile, "another head"},
      {"UnknownTensor", [](auto& c) { c.set("model.transformer.blocks.0.q_norm.weight", {16}); }, kUnsupported,
       "model.transformer.blocks.0.q_norm.weight: the architecture has no such tensor"},
      {"TwoNamesForOneTensor", [](auto& c) { c.set("model.transformer.blocks.00.q_proj.weight", {64, 64}); },
       kInvalidFile, "another tensor becomes 'blk.0.attn_q.weight' too"},
      {"WrongShape", [](auto& c) { c.set("model.transformer.blocks.0.ff_proj.weight", {64, 64}); }, kInvalidFile,
       "blk.0.ffn_gate.weight: shape [64, 64] contradicts"},
      {"NoTokenizer", [](auto& c) { c.tokenizer = nullptr; }, kInvalidFile, "neither tokenizer.json nor vocab.json"},
      {"TooManyTokens",
       [](auto& c) {
         c.set("model.transformer.wte.weight", {200, 64});
         c.set("model.transformer.ff_out.weight", {200, 64});
       },
       kInvalidFile, "262 tokens, but the embedding has 200 rows"},
      {"MaskOutsideTheEmbedding", [](auto& c) { c.config["mask_token_id"] = 272; }, kInvalidFile,
       "'mask_token_id' is 272, outside the embedding of 272 rows"},
      {"NoMask",
       [](auto& c) {
         c.config.erase("mask_token_id");
         c.tokenizer["added_tokens"][3]["content"] = "<|other|>";
       },
       kInvalidFile, "'mask_token_id' is missing"},
      {"EosIsText", [](auto& c) { c.generation_config = {{"eos_token_id", {"x"}}}; }, kInvalidFile,
       "'eos_token_id' holds \"x\""},
      {"CanvasIsEmpty", [](auto& c) { c.generation_config = {{"gen_length", 0}}; }, kInvalidFile, "gen_length"},
      {"NoDefaultTemplate", [](auto& c) { c.tokenizer_config["chat_template"] = {{{"name", "a"}, {"template", "b"}}}; },
       kInvalidFile, "none is named default"},
      {"TemplateIsANumber", [](auto& c) { c.tokenizer_config["chat_template"] = 3; }, kInvalidFile,
       "'chat_template' is 3, wanted a string"},
  };
  return all;
}

class DamagedCheckpoint : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedCheckpoint, IsAnErrorThatNamesThePlace) {
  const TempDirectory directory;
  HfCheckpoint checkpoint = make_checkpoint({});
  GetParam().apply(checkpoint);
  const auto source = convert(checkpoint, directory);
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code, GetParam().code) << source.error().message();
  EXPECT_NE(source.error().message().find(GetParam().text), std::string::npos) << source.error().message();
}

INSTANTIATE_TEST_SUITE_P(SourceHf, DamagedCheckpoint, ::testing::ValuesIn(damages()),
                         [](const auto& damage) { return std::string(damage.param.name); });

/// The checkpoint with the files of a Python tokenizer in place of tokenizer.json, whose pattern is Qwen2's.
HfCheckpoint with_vocabulary_files(const TempDirectory& directory, const std::string& merges) {
  HfCheckpoint checkpoint = make_checkpoint({.family = "dream"});
  test::write_text(directory.file("vocab.json"), checkpoint.tokenizer["model"]["vocab"].dump());
  test::write_text(directory.file("merges.txt"), merges);
  checkpoint.tokenizer_config["tokenizer_class"] = "DreamTokenizer";
  checkpoint.tokenizer_config["added_tokens_decoder"] = nlohmann::json::object();
  for (const auto& token : checkpoint.tokenizer["added_tokens"])
    checkpoint.tokenizer_config["added_tokens_decoder"][std::to_string(token["id"].get<int>())] = token;
  checkpoint.tokenizer = nullptr;
  return checkpoint;
}

void expect_tokens_of(const ModelSource& made, const ModelSource& converted) {
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"})
    EXPECT_EQ(made.metadata.find(key)->payload, converted.metadata.find(key)->payload) << key;
  EXPECT_EQ(text(made, "tokenizer.ggml.pre"), "qwen2");
  EXPECT_EQ(integer(made, "tokenizer.ggml.mask_token_id"), 260);
}

TEST(SourceHf, VocabAndMergesWithoutTokenizerJson) {
  const TempDirectory plain;
  const ModelSource converted = convert_ok(make_checkpoint({.family = "dream"}), plain);
  for (const char* merges : {"#version: 0.2\nh e\n", "h e", "#version: 0.2\r\nh e\r\n\r\n"}) {
    const TempDirectory directory;
    expect_tokens_of(convert_ok(with_vocabulary_files(directory, merges), directory), converted);
  }
}

TEST(SourceHf, AddedTokensFileCountsWithoutAListInTheConfig) {
  const TempDirectory plain, directory;
  const ModelSource converted = convert_ok(make_checkpoint({.family = "dream"}), plain);
  HfCheckpoint checkpoint = with_vocabulary_files(directory, "h e\n");
  nlohmann::json added = nlohmann::json::object(), names = nlohmann::json::array();
  for (const auto& [id, token] : checkpoint.tokenizer_config["added_tokens_decoder"].items()) {
    added[token["content"].get<std::string>()] = std::stoi(id);
    names.push_back(token["content"]);
  }
  test::write_text(directory.file("added_tokens.json"), R"({"<other name>": 260})");
  expect_tokens_of(convert_ok(checkpoint, directory), converted);  // the config's list wins
  checkpoint.tokenizer_config.erase("added_tokens_decoder");
  test::write_text(directory.file("added_tokens.json"), added.dump());
  test::write_text(directory.file("special_tokens_map.json"),
                   nlohmann::json{{"eos_token", {{"content", names[0]}}}, {"additional_special_tokens", names}}.dump());
  expect_tokens_of(convert_ok(checkpoint, directory), converted);
}

TEST(SourceHf, DamagedVocabularyFiles) {
  const auto message = [](const char* merges, const char* tokenizer_class, const char* vocabulary = nullptr) {
    const TempDirectory directory;
    HfCheckpoint checkpoint = with_vocabulary_files(directory, merges);
    checkpoint.tokenizer_config["tokenizer_class"] = tokenizer_class;
    if (vocabulary) test::write_text(directory.file("vocab.json"), vocabulary);
    const auto source = convert(checkpoint, directory);
    return source ? std::string() : source.error().message();
  };
  EXPECT_NE(message("h e", "BertTokenizer").find("'BertTokenizer'"), std::string::npos);
  EXPECT_NE(message("h e", "BertTokenizer").find("save_pretrained"), std::string::npos);
  EXPECT_NE(message("#version: 0.2\n", "Qwen2Tokenizer").find("merges.txt"), std::string::npos);
  EXPECT_NE(message("h \xff", "Qwen2TokenizerFast").find("merge"), std::string::npos);
  EXPECT_NE(message("h e", "GPT2Tokenizer", "[1, 2").find("vocab.json"), std::string::npos);
  EXPECT_EQ(message("h e", "GPT2Tokenizer"), "");
}

TEST(SourceHf, ScaledRopeIsRefused) {
  const TempDirectory directory;
  HfCheckpoint checkpoint = make_checkpoint({.family = "llama"});
  checkpoint.config["rope_scaling"] = {{"rope_type", "llama3"}, {"factor", 8.0}};
  const auto source = convert(checkpoint, directory);
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace dllm
