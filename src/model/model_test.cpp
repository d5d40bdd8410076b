// Does Model::load refuse every model that it could only run wrongly?
#include "model/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "base/testing/fuzz_replay.h"
#include "model/testing/fuzz_entry.h"
#include "model/testing/hf_directory.h"

namespace dllm {
namespace {

using test::make_checkpoint;
using test::TempDirectory;

/// A sound source whose bytes outlive the test's directory.
ModelSource sound_source(const test::HfSpec& spec = {}) {
  const TempDirectory directory;
  make_checkpoint(spec).write(directory.path());
  auto source = source_from_hf(directory.path());
  if (source) return *std::move(source);
  ADD_FAILURE() << source.error().message();
  return {};
}

SourceTensor& tensor(ModelSource& source, std::string_view name) {
  for (SourceTensor& candidate : source.tensors)
    if (candidate.name == name) return candidate;
  throw std::runtime_error("no such tensor");
}

void drop(ModelSource& source, std::string_view name) {
  std::erase_if(source.tensors, [&](const SourceTensor& candidate) { return candidate.name == name; });
}

TEST(FuzzCorpus, Config) { test::replay_corpus("config", 100, fuzz_config); }

TEST(FuzzCorpus, Model) {
  test::replay_corpus("model", 20, [](std::string_view text) { fuzz_model(test::bytes_of(text)); });
}

TEST(Model, LoadsAndBindsWeightsToTheGraph) {
  const auto model = Model::load(sound_source({.kv_heads = 2}));
  ASSERT_TRUE(model) << model.error().message();
  const Graph graph = (*model)->build({3, 2});
  EXPECT_EQ(validate(graph), "");
  ASSERT_EQ(graph.weights.size(), (*model)->weights().size());
  for (std::size_t i = 0; i < graph.weights.size(); ++i) {
    const WeightView& view = (*model)->weights()[i];
    EXPECT_EQ(view.present(), graph.weights[i].required) << graph.weights[i].name;
    if (!view.present()) continue;
    EXPECT_EQ(view.shape, graph.weights[i].shape) << graph.weights[i].name;
  }
}

TEST(Model, PermutedWeightsAreReordered) {
  ModelSource source = sound_source();
  std::vector<std::byte> expected(tensor(source, "blk.0.attn_q.weight").data.size());
  permute_qk(tensor(source, "blk.0.attn_q.weight").data, 4, 64 * 4, expected);
  const auto model = Model::load(std::move(source));
  ASSERT_TRUE(model) << model.error().message();
  const Graph graph = (*model)->build({1, 1});
  for (std::size_t i = 0; i < graph.weights.size(); ++i) {
    if (graph.weights[i].name != "blk.0.attn_q.weight") continue;
    EXPECT_TRUE(std::ranges::equal((*model)->weights()[i].data, expected));
  }
}

TEST(Model, UnreadKeysAndBrokenTemplatesAreReported) {
  ModelSource source = sound_source();
  source.metadata.set("llada.some.new.feature", MetaValue::u32(1));
  source.metadata.set("tokenizer.chat_template", MetaValue::string("{% for x in %}"));
  std::vector<std::string> lines;
  const auto model =
      Model::load(std::move(source), Log([&](LogLevel, const std::string& line) { lines.push_back(line); }));
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ((*model)->chat_template(), nullptr);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("tokenizer.chat_template"), std::string::npos);
  EXPECT_NE(lines[1].find("llada.some.new.feature"), std::string::npos);
}

TEST(Model, RunsWithoutATokenizer) {
  ModelSource source = sound_source();
  const auto entries = source.metadata.entries();
  for (const auto& [key, value] : entries)
    if (key.starts_with("tokenizer.")) source.metadata.erase(key);
  source.metadata.set("tokenizer.ggml.mask_token_id", MetaValue::u32(260));
  const auto model = Model::load(std::move(source));
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ((*model)->tokenizer(), nullptr);
  EXPECT_EQ((*model)->desc().mask, 260);
  EXPECT_FALSE((*model)->desc().eos);  // the default of the full vocabulary does not fit this one
}

TEST(Model, ATokenizerNobodyReadsTakesAwayTextNotTheNetwork) {
  for (const auto& [key, value] :
       {std::pair{"tokenizer.ggml.pre", "nobody-knows"}, std::pair{"tokenizer.ggml.model", "llama"}}) {
    ModelSource source = sound_source();
    source.metadata.set(key, MetaValue::string(value));
    std::vector<std::string> lines;
    const auto model =
        Model::load(std::move(source), Log([&](LogLevel, const std::string& line) { lines.push_back(line); }));
    ASSERT_TRUE(model) << model.error().message();
    EXPECT_EQ((*model)->tokenizer(), nullptr);
    const auto tokenizer = (*model)->require_tokenizer();
    ASSERT_FALSE(tokenizer);
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(tokenizer.error().message().find(value), std::string::npos) << tokenizer.error().message();
    ASSERT_FALSE(lines.empty());
    EXPECT_NE(lines[0].find(value), std::string::npos) << lines[0];
  }
}

TEST(Model, TrailingDimensionsOfOneAreTolerated) {
  ModelSource source = sound_source();
  tensor(source, "output_norm.weight").shape = {64, 1};
  const auto model = Model::load(std::move(source));
  EXPECT_TRUE(model) << model.error().message();
}

struct MetadataDamage {
  const char* name;
  std::function<void(ModelSource&)> apply;
  ErrorCode code;
  const char* text;  ///< part of the message
};

template <class Value>
auto set(const char* key, Value value) {
  return [=](ModelSource& source) { source.metadata.set(key, value); };
}

const std::vector<MetadataDamage>& metadata_damages() {
  using enum ErrorCode;
  using V = MetaValue;
  static const std::vector<MetadataDamage> all = {
      {"NoArchitecture", [](auto& s) { s.metadata.erase("general.architecture"); }, kInvalidFile,
       "general.architecture: the key is missing"},
      {"UnknownArchitecture", set("general.architecture", V::string("mamba")), kUnsupported,
       "unknown model architecture 'mamba' (this build runs llada, dream, llama, "},
      {"ArchitectureIsANumber", set("general.architecture", V::u32(1)), kInvalidFile, "general.architecture"},
      {"MissingTensor", [](auto& s) { drop(s, "blk.1.ffn_up.weight"); }, kInvalidFile,
       "blk.1.ffn_up.weight: the tensor is missing"},
      {"MissingEmbedding", [](auto& s) { drop(s, "token_embd.weight"); }, kInvalidFile, "embedding matrix is missing"},
      {"SurplusTensor",
       [](auto& s) {
         s.tensors.push_back(tensor(s, "output_norm.weight"));
         s.tensors.back().name = "blk.0.attn_q_norm.weight";
       },
       kUnsupported, "blk.0.attn_q_norm.weight: the architecture has no such tensor"},
      {"WrongShape", [](auto& s) { tensor(s, "blk.0.ffn_up.weight").shape = {96, 64}; }, kInvalidFile,
       "blk.0.ffn_up.weight: shape [96, 64] contradicts the metadata, which promises [64, 96]"},
      {"BlockTypeForAVector", [](auto& s) { tensor(s, "output_norm.weight").type = TensorType::kQ8_0; }, kUnsupported,
       "output_norm.weight: type Q8_0 is not supported for vectors"},
      {"EmbeddingIsAVector", [](auto& s) { tensor(s, "token_embd.weight").shape = {64}; }, kInvalidFile,
       "embedding matrix is missing"},
      {"NoLayers", set("llada.block_count", V::u32(0)), kInvalidFile, "llada.block_count"},
      {"NegativeLayers", set("llada.block_count", V::i32(-2)), kInvalidFile, "-2 is not a size between"},
      {"TooManyLayers", set("llada.block_count", V::u32(16000000)), kInvalidFile,
       "16000000 layers need more than 21 tensors"},
      {"HugeWidth", set("llada.embedding_length", V::u64(std::uint64_t{1} << 40)), kInvalidFile, "not a size between"},
      {"WidthIsText", set("llada.embedding_length", V::string("64")), kInvalidFile, "llada.embedding_length"},
      {"WidthMissing", [](auto& s) { s.metadata.erase("llada.embedding_length"); }, kInvalidFile,
       "llada.embedding_length: the key is missing"},
      {"NoHeads", set("llada.attention.head_count", V::u32(0)), kInvalidFile, "llada.attention.head_count"},
      {"KvHeadsDoNotDivide", set("llada.attention.head_count_kv", V::u32(3)), kInvalidFile,
       "4 heads are not a multiple of 3 kv heads"},
      {"HeadsDoNotDivideWidth", set("llada.attention.head_count", V::u32(7)), kInvalidFile, "attention.key_length"},
      {"OtherValueHeads", set("llada.attention.value_length", V::u32(8)), kUnsupported, "value heads of 8 differ"},
      {"VocabContradicts", set("llada.vocab_size", V::u32(300)), kInvalidFile,
       "vocab_size is 300, but token_embd.weight has 272 rows"},
      {"MoreTokensThanRows",
       [](auto& s) {
         std::vector<std::string> tokens = **s.metadata.strings("tokenizer.ggml.tokens");
         tokens.push_back("one more");
         s.metadata.set("tokenizer.ggml.tokens", V::strings(tokens));
         s.metadata.set("tokenizer.ggml.token_type", V::i32s(std::vector<std::int32_t>(tokens.size(), 1)));
       },
       kInvalidFile, "273 tokens, but token_embd.weight has 272 rows"},
      {"RopeBaseIsZero", set("llada.rope.freq_base", V::f32(0.f)), kInvalidFile, "0 is not a valid rope base"},
      {"OddRope", set("llada.rope.dimension_count", V::u32(15)), kInvalidFile, "15 rotated dims"},
      {"RopeWiderThanHeads", set("llada.rope.dimension_count", V::u32(32)), kInvalidFile, "32 rotated dims"},
      {"EpsilonIsZero", set("llada.attention.layer_norm_rms_epsilon", V::f32(0.f)), kInvalidFile, "valid epsilon"},
      {"Experts", set("llada.expert_count", V::u32(8)), kUnsupported, "expert_count = 8"},
      {"SlidingWindow", set("llada.attention.sliding_window", V::u32(4096)), kUnsupported, "sliding_window"},
      {"MaskOutside", set("tokenizer.ggml.mask_token_id", V::u32(272)), kInvalidFile, "272"},
      {"BlockLengthIsZero", set("diffusion.block_length", V::u32(0)), kInvalidFile, "0 is not a valid block length"},
      {"CanvasLengthIsZero", set("dllm.canvas_length", V::u32(0)), kInvalidFile, "0 is not a valid canvas length"},
      {"CanvasLengthIsText", set("dllm.canvas_length", V::string("64")), kInvalidFile, "dllm.canvas_length"},
      {"ShiftIsANumber", set("diffusion.shift_logits", V::u32(1)), kInvalidFile, "diffusion.shift_logits"},
  };
  return all;
}

const std::vector<MetadataDamage>& rope_damages() {
  using enum ErrorCode;
  using V = MetaValue;
  static const std::vector<MetadataDamage> all = {
      {"LongRope", set("llada.rope.scaling.type", V::string("longrope")), kUnsupported, "rope scaling 'longrope'"},
      {"YarnWithoutFactor", set("llada.rope.scaling.type", V::string("yarn")), kInvalidFile, "rope.scaling.factor"},
      {"YarnWithoutContext",
       [](auto& s) {
         s.metadata.set("llada.rope.scaling.type", V::string("yarn"));
         s.metadata.set("llada.rope.scaling.factor", V::f32(4.f));
         s.metadata.set("llada.rope.scaling.original_context_length", V::u32(0));
       },
       kInvalidFile, "original_context_length"},
      {"PartOfYarn",
       [](auto& s) {
         s.metadata.set("llada.rope.scaling.type", V::string("yarn"));
         s.metadata.set("llada.rope.scaling.factor", V::f32(4.f));
         s.metadata.set("llada.rope.scaling.yarn_ext_factor", V::f32(0.5f));
       },
       kUnsupported, "yarn_ext_factor"},
      {"GrowthWithoutLength", set("llada.attention.temperature_scale", V::f32(0.1f)), kInvalidFile,
       "attention.temperature_length"},
      {"GrowthOfPartOfAHead",
       [](auto& s) {
         s.metadata.set("llada.attention.temperature_scale", V::f32(0.1f));
         s.metadata.set("llada.attention.temperature_length", V::u32(64));
         s.metadata.set("llada.rope.dimension_count", V::u32(8));
       },
       kUnsupported, "not all of their lanes turn"},
  };
  return all;
}

class DamagedModel : public ::testing::TestWithParam<MetadataDamage> {};

TEST_P(DamagedModel, IsAnErrorThatNamesThePlace) {
  ModelSource source = sound_source();
  GetParam().apply(source);
  const auto model = Model::load(std::move(source), Log([](LogLevel, const std::string&) {}));
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, GetParam().code) << model.error().message();
  EXPECT_NE(model.error().message().find(GetParam().text), std::string::npos) << model.error().message();
}

INSTANTIATE_TEST_SUITE_P(Model, DamagedModel, ::testing::ValuesIn(metadata_damages()),
                         [](const auto& damage) { return std::string(damage.param.name); });
INSTANTIATE_TEST_SUITE_P(Rope, DamagedModel, ::testing::ValuesIn(rope_damages()),
                         [](const auto& damage) { return std::string(damage.param.name); });

}  // namespace
}  // namespace dllm
