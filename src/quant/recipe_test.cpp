// Does every tensor get the type that llama-quantize gives it?
#include "quant/recipe.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "model/shape.h"

namespace dllm {
namespace {

struct Spec {
  std::int64_t layers = 32, width = 4096, ffn_width = 12288, heads = 32, kv_heads = 32;
  bool tied = false;
};

/// Names and shapes of a dense model, without data, which recipes do not read.
ModelSource outline(const Spec& spec) {
  ModelSource source;
  const auto set = [&](const char* key, std::int64_t value) {
    source.metadata.set(fmt::format("llada.{}", key), MetaValue::u32(static_cast<std::uint32_t>(value)));
  };
  source.metadata.set("general.architecture", MetaValue::string("llada"));
  set("block_count", spec.layers);
  set("attention.head_count", spec.heads);
  set("attention.head_count_kv", spec.kv_heads);
  const auto add = [&](std::string name, Shape shape) {
    source.tensors.push_back({std::move(name), TensorType::kF16, std::move(shape), {}, 0});
  };
  const std::int64_t kv = spec.width / spec.heads * spec.kv_heads;
  add("token_embd.weight", {spec.width, 126464});
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    const auto part = [&](const char* name, Shape shape) { add(fmt::format("blk.{}.{}", layer, name), shape); };
    part("attn_norm.weight", {spec.width});
    part("attn_q.weight", {spec.width, spec.width});
    part("attn_q.bias", {spec.width});
    part("attn_k.weight", {spec.width, kv});
    part("attn_v.weight", {spec.width, kv});
    part("attn_v.bias", {kv});
    part("attn_output.weight", {spec.width, spec.width});
    part("ffn_norm.weight", {spec.width});
    part("ffn_gate.weight", {spec.width, spec.ffn_width});
    part("ffn_up.weight", {spec.width, spec.ffn_width});
    part("ffn_down.weight", {spec.ffn_width, spec.width});
  }
  add("output_norm.weight", {spec.width});
  if (!spec.tied) add("output.weight", {spec.width, 126464});
  return source;
}

std::vector<TypeChoice> choose(const char* recipe, const ModelSource& source, const RecipeOptions& options = {}) {
  const auto choices = choose_types(**find_recipe(recipe), source, options);
  if (choices) return *choices;
  ADD_FAILURE() << choices.error().message();
  return std::vector<TypeChoice>(source.tensors.size());
}

std::string type_of(const char* recipe, const ModelSource& source, const std::string& tensor,
                    const RecipeOptions& options = {}) {
  const auto choices = choose(recipe, source, options);
  for (std::size_t i = 0; i < choices.size(); ++i)
    if (source.tensors[i].name == tensor) return std::string(codec(choices[i].type).name);
  return "no such tensor";
}

/// Layers whose `part` has the type.
std::set<int> layers_with(const char* recipe, const ModelSource& source, std::string_view part, TensorType type) {
  const auto choices = choose(recipe, source);
  std::set<int> layers;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const std::string& name = source.tensors[i].name;
    if (name.starts_with("blk.") && name.ends_with(part) && choices[i].type == type)
      layers.insert(std::stoi(name.substr(4)));
  }
  return layers;
}

TEST(Recipe, NamesAndFileTypesAreLlamaCpps) {
  const std::pair<const char*, std::uint32_t> expected[] = {
      {"F32", 0},     {"F16", 1},     {"Q4_0", 2},    {"Q4_1", 3},    {"Q8_0", 7},   {"Q5_0", 8},  {"Q5_1", 9},
      {"Q4_K_S", 14}, {"Q4_K_M", 15}, {"Q5_K_S", 16}, {"Q5_K_M", 17}, {"Q6_K", 18},  {"BF16", 32}, {"Q2_K", 10},
      {"Q3_K_S", 11}, {"Q3_K_M", 12}, {"Q3_K_L", 13}, {"IQ4_NL", 25}, {"IQ4_XS", 30}};
  for (const auto& [name, number] : expected) {
    const auto recipe = find_recipe(name);
    ASSERT_TRUE(recipe) << name;
    EXPECT_EQ((*recipe)->file_type, number) << name;
  }
  ASSERT_TRUE(find_recipe("q4_k_m"));
  EXPECT_EQ((*find_recipe("q4_k_m"))->name, "Q4_K_M");
}

TEST(Recipe, UnknownNamesListTheKnownOnes) {
  const auto recipe = find_recipe("IQ5_M");
  ASSERT_FALSE(recipe);
  EXPECT_EQ(recipe.error().code, ErrorCode::kUsage);
  EXPECT_NE(recipe.error().hint.find("Q4_K_M"), std::string::npos);
}

TEST(Recipe, MixesThatAreOnlyReadAreRefusedByName) {
  const std::pair<const char*, std::uint32_t> expected[] = {
      {"IQ1_S", 24},   {"IQ1_M", 31},  {"IQ2_XXS", 19}, {"IQ2_XS", 20}, {"IQ2_S", 28}, {"IQ2_M", 29},
      {"IQ3_XXS", 23}, {"IQ3_XS", 22}, {"IQ3_S", 26},   {"IQ3_M", 27},  {"Q2_K_S", 21}};
  for (const auto& [name, number] : expected) {
    const auto recipe = find_recipe(name);
    ASSERT_FALSE(recipe) << name;
    EXPECT_EQ(recipe.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(recipe.error().message().find(fmt::format("{} is read, not written", name)), std::string::npos);
    const bool lacks_encoder = std::string_view(name) != "Q2_K_S";
    EXPECT_EQ(recipe.error().what.find("no encoder") != std::string::npos, lacks_encoder) << name;
    EXPECT_EQ(recipe.error().hint.starts_with("take Q2_K, the nearest mix"), !lacks_encoder) << name;
    EXPECT_EQ(file_type_name(number), name);
  }
  EXPECT_EQ(file_type_name(15), "Q4_K_M");
  EXPECT_EQ(file_type_name(12345), "");
}

// use_more_bits(i, 32): i < 4, i >= 28, (i - 4) % 3 == 2.
TEST(Recipe, MediumMixOf32Layers) {
  const ModelSource source = outline({});
  const std::set<int> more = {0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31};
  for (const char* recipe : {"Q4_K_M", "Q5_K_M"}) {
    EXPECT_EQ(layers_with(recipe, source, "attn_v.weight", TensorType::kQ6_K), more) << recipe;
    EXPECT_EQ(layers_with(recipe, source, "ffn_down.weight", TensorType::kQ6_K), more) << recipe;
    const char* base = (*find_recipe(recipe))->base == TensorType::kQ4_K ? "Q4_K" : "Q5_K";
    for (const char* part : {"attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up"})
      EXPECT_EQ(type_of(recipe, source, fmt::format("blk.0.{}.weight", part)), base);
    EXPECT_EQ(type_of(recipe, source, "blk.5.attn_v.weight"), base);
    EXPECT_EQ(type_of(recipe, source, "token_embd.weight"), base);
    EXPECT_EQ(type_of(recipe, source, "output.weight"), "Q6_K");
  }
}

TEST(Recipe, MediumMixOfFewLayers) {
  // n/8 is 0 for both; 7n/8 is 2 of 3 and 4 of 5.
  EXPECT_EQ(layers_with("Q4_K_M", outline({.layers = 3}), "ffn_down.weight", TensorType::kQ6_K), (std::set<int>{2}));
  EXPECT_EQ(layers_with("Q4_K_M", outline({.layers = 5}), "attn_v.weight", TensorType::kQ6_K), (std::set<int>{2, 4}));
}

TEST(Recipe, SmallMix) {
  const ModelSource source = outline({});
  EXPECT_EQ(layers_with("Q4_K_S", source, "attn_v.weight", TensorType::kQ5_K), (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(layers_with("Q4_K_S", outline({.layers = 64}), "ffn_down.weight", TensorType::kQ5_K),
            (std::set<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(type_of("Q5_K_S", source, "blk.0.attn_v.weight"), "Q5_K");
}

TEST(Recipe, MixesOfThreeBits) {
  const ModelSource source = outline({});
  const auto types = [&](const char* recipe, int layer) {
    std::string all;
    for (const char* part : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
      all += type_of(recipe, source, fmt::format("blk.{}.{}.weight", layer, part)) + " ";
    return all;
  };
  EXPECT_EQ(types("Q3_K_S", 0), "Q3_K Q3_K Q3_K Q3_K Q3_K Q3_K Q3_K ");
  EXPECT_EQ(types("Q3_K_M", 1), "Q3_K Q3_K Q5_K Q4_K Q3_K Q3_K Q5_K ");
  EXPECT_EQ(types("Q3_K_M", 2), "Q3_K Q3_K Q4_K Q4_K Q3_K Q3_K Q4_K ");
  EXPECT_EQ(types("Q3_K_L", 31), "Q3_K Q3_K Q5_K Q5_K Q3_K Q3_K Q5_K ");
  EXPECT_EQ(types("Q2_K", 9), "Q2_K Q2_K Q3_K Q3_K Q2_K Q2_K Q3_K ");
  EXPECT_EQ(types("IQ4_XS", 3), "IQ4_XS IQ4_XS IQ4_XS IQ4_XS IQ4_XS IQ4_XS Q5_K ");
  EXPECT_EQ(types("IQ4_NL", 4), "IQ4_NL IQ4_NL IQ4_NL IQ4_NL IQ4_NL IQ4_NL IQ4_NL ");
  for (const char* recipe : {"Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "IQ4_NL", "IQ4_XS"}) {
    EXPECT_EQ(type_of(recipe, source, "output.weight"), "Q6_K") << recipe;
    EXPECT_EQ(type_of(recipe, source, "token_embd.weight"), codec((*find_recipe(recipe))->base).name) << recipe;
  }
  EXPECT_EQ(type_of("Q3_K", source, "output.weight"), "Q3_K");
}

TEST(Recipe, ValuesThatFourHeadsShareGetMore) {
  for (const std::int64_t kv_heads : {8, 10}) {  // 32 / 10 heads are three, rounded down
    const ModelSource source = outline({.width = 10240, .heads = 32, .kv_heads = kv_heads});
    EXPECT_EQ(type_of("Q2_K", source, "blk.9.attn_v.weight"), kv_heads == 8 ? "Q4_K" : "Q3_K");
    EXPECT_EQ(type_of("IQ4_XS", source, "blk.9.attn_v.weight"), kv_heads == 8 ? "Q5_K" : "IQ4_XS");
    EXPECT_EQ(type_of("Q3_K_M", source, "blk.9.attn_v.weight"), "Q4_K");
  }
}

TEST(Recipe, ValuesOfALarge80LayerModelWithFewKvHeadsGetMore) {
  EXPECT_EQ(type_of("Q4_K_M", outline({.layers = 80, .kv_heads = 8}), "blk.11.attn_v.weight"), "Q5_K");
  EXPECT_EQ(type_of("Q4_K_M", outline({.layers = 80}), "blk.11.attn_v.weight"), "Q4_K");
  EXPECT_EQ(type_of("Q3_K_S", outline({.layers = 80, .kv_heads = 8}), "blk.11.attn_v.weight"), "Q5_K");
  EXPECT_EQ(type_of("Q3_K_S", outline({.layers = 80}), "blk.11.attn_v.weight"), "Q3_K");
}

TEST(Recipe, HeadsOfUniformTypes) {
  const ModelSource source = outline({});
  EXPECT_EQ(type_of("Q8_0", source, "output.weight"), "Q8_0");
  for (const char* recipe : {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q6_K"})
    EXPECT_EQ(type_of(recipe, source, "output.weight"), "Q6_K") << recipe;
  EXPECT_EQ(type_of("Q4_K", source, "output.weight"), "Q4_K");
  for (const char* recipe : {"F32", "F16", "BF16"}) EXPECT_EQ(type_of(recipe, source, "output.weight"), recipe);
}

TEST(Recipe, TiedEmbeddingIsTreatedAsTheHead) {
  const ModelSource source = outline({.tied = true});
  EXPECT_EQ(type_of("Q4_K_M", source, "token_embd.weight"), "Q6_K");
  EXPECT_EQ(type_of("Q4_0", source, "token_embd.weight"), "Q6_K");
  EXPECT_EQ(type_of("Q8_0", source, "token_embd.weight"), "Q8_0");
}

TEST(Recipe, VectorsNormsAndGatesStayF32) {
  ModelSource source = outline({});
  source.tensors.push_back({"blk.0.attn_q_norm.weight", TensorType::kBF16, {128, 32}, {}, 0});
  source.tensors.push_back({"blk.0.ffn_gate_inp.weight", TensorType::kBF16, {4096, 64}, {}, 0});
  for (const Recipe& recipe : recipes())
    for (const char* name : {"blk.0.attn_norm.weight", "blk.0.attn_v.bias", "output_norm.weight",
                             "blk.0.attn_q_norm.weight", "blk.0.ffn_gate_inp.weight"})
      EXPECT_EQ(type_of(std::string(recipe.name).c_str(), source, name), "F32") << recipe.name << " " << name;
}

TEST(Recipe, RowsOf128FallBackToBlocksOf32) {
  const ModelSource source = outline({.layers = 5, .width = 128, .ffn_width = 384, .heads = 4, .kv_heads = 4});
  EXPECT_EQ(type_of("Q4_K_M", source, "blk.0.attn_q.weight"), "Q5_0");
  EXPECT_EQ(type_of("Q4_K_M", source, "blk.2.attn_v.weight"), "Q8_0");
  EXPECT_EQ(type_of("Q5_K_M", source, "blk.0.attn_q.weight"), "Q5_1");
  EXPECT_EQ(type_of("Q6_K", source, "blk.0.ffn_down.weight"), "Q8_0");
  EXPECT_EQ(type_of("Q4_0", source, "output.weight"), "Q8_0");
  EXPECT_EQ(type_of("Q4_0", source, "blk.0.attn_q.weight"), "Q4_0");
  EXPECT_EQ(type_of("Q2_K", source, "blk.0.attn_q.weight"), "Q4_0");
  EXPECT_EQ(type_of("Q3_K_M", source, "blk.0.attn_q.weight"), "Q4_0");
  EXPECT_EQ(type_of("Q3_K_M", source, "blk.0.attn_v.weight"), "Q5_1");
  EXPECT_EQ(type_of("IQ4_XS", source, "blk.0.attn_q.weight"), "IQ4_NL");
  EXPECT_EQ(type_of("IQ4_NL", source, "output.weight"), "Q8_0");
  for (const TypeChoice& choice : choose("Q4_K", source))
    if (choice.type != TensorType::kF32) {
      EXPECT_EQ(choice.type, TensorType::kQ5_0);
      EXPECT_EQ(choice.instead_of, TensorType::kQ4_K);
    }
}

TEST(Recipe, RowsThatNoBlockDividesAreF16) {
  const ModelSource source = outline({.layers = 2, .width = 80, .ffn_width = 112, .heads = 4, .kv_heads = 4});
  for (const char* recipe : {"Q8_0", "Q4_0", "Q4_K_M", "Q6_K"})
    EXPECT_EQ(type_of(recipe, source, "blk.0.attn_q.weight"), "F16") << recipe;
}

TEST(Recipe, MicroscalingKeepsTheTableInBf16) {
  const ModelSource source = outline({}), tied = outline({.tied = true});
  for (const char* name : {"MXINT4", "mxint4:32:ocp", "MXINT8", "mxfp8", "mxint4:16:plena", "mxfp4_e2m1"}) {
    const std::string type(codec((*find_recipe(name))->base).name);
    EXPECT_EQ(type_of(name, source, "blk.0.attn_v.weight"), type);
    EXPECT_EQ(type_of(name, source, "output.weight"), type);
    EXPECT_EQ(type_of(name, source, "token_embd.weight"), "BF16");
    EXPECT_EQ(type_of(name, tied, "token_embd.weight"), "BF16");
    EXPECT_EQ(type_of(name, source, "token_embd.weight", {.pure = true}), type);
    EXPECT_EQ((*find_recipe(name))->file_type, static_cast<std::uint32_t>((*find_recipe(name))->base));
  }
  EXPECT_EQ((*find_recipe("mxint4:16:plena"))->name, "mxint4:16:plena");
  EXPECT_EQ((*find_recipe("mxfp4"))->base, TensorType::kMXFP4);
  EXPECT_FALSE(find_recipe("mxint4:64"));
  EXPECT_EQ(type_of("mxint4:8", outline({.layers = 2, .width = 80, .ffn_width = 112, .heads = 4, .kv_heads = 4}),
                    "blk.0.attn_q.weight"),
            "mxint4:8:ocp");
}

TEST(Recipe, OverridesHoldOverTheMix) {
  const ModelSource source = outline({}), tied = outline({.tied = true});
  EXPECT_EQ(type_of("Q4_K_M", source, "output.weight", {.pure = true}), "Q4_K");
  EXPECT_EQ(type_of("Q4_K_M", source, "blk.0.attn_v.weight", {.pure = true}), "Q4_K");
  EXPECT_EQ(type_of("Q4_K_M", source, "output.weight", {.output_type = TensorType::kQ8_0}), "Q8_0");
  EXPECT_EQ(type_of("Q4_K_M", source, "token_embd.weight", {.output_type = TensorType::kQ8_0}), "Q4_K");
  EXPECT_EQ(type_of("Q4_K_M", tied, "token_embd.weight", {.output_type = TensorType::kQ8_0}), "Q8_0");
  EXPECT_EQ(type_of("Q4_K_M", source, "token_embd.weight", {.token_embedding_type = TensorType::kF16}), "F16");
}

TEST(Recipe, AMixNeedsTheNumberOfLayers) {
  ModelSource source = outline({});
  source.metadata.erase("llada.block_count");
  const auto choices = choose_types(**find_recipe("Q4_K_M"), source, {});
  ASSERT_FALSE(choices);
  EXPECT_EQ(choices.error().code, ErrorCode::kInvalidFile);
  EXPECT_EQ(choices.error().where, "llada.block_count");
  EXPECT_TRUE(choose_types(**find_recipe("Q8_0"), source, {}));
}

TEST(Recipe, ExpertsAndFusedProjections) {
  const ModelShape& shape = **find_shape("llada-moe-7b");
  const ModelSource moe = *shape_source(shape);
  EXPECT_EQ(type_of("Q4_0", moe, "blk.3.ffn_gate_exps.weight"), "Q4_0");
  EXPECT_EQ(type_of("Q4_0", moe, "blk.3.ffn_gate_inp.weight"), "F32");
  EXPECT_EQ(type_of("Q4_K_M", moe, "blk.0.ffn_down_exps.weight"), "Q6_K");
  EXPECT_EQ(type_of("Q4_K_M", moe, "blk.2.ffn_down_exps.weight"), "Q4_K");
  EXPECT_EQ(type_of("Q4_K_M", moe, "blk.0.attn_q_norm.weight"), "F32");

  ModelSource fused = outline({});
  for (SourceTensor& tensor : fused.tensors)
    if (tensor.name.ends_with("attn_v.weight")) tensor.name.replace(tensor.name.size() - 8, 8, "qkv.weight");
  const ModelSource apart = outline({});
  for (const char* recipe : {"Q4_K_M", "Q5_K_M", "Q4_K_S", "Q2_K", "Q3_K_M", "Q3_K_L", "IQ4_XS"})
    for (const int layer : {0, 1, 2, 5, 31})
      EXPECT_EQ(type_of(recipe, fused, fmt::format("blk.{}.attn_qkv.weight", layer)),
                type_of(recipe, apart, fmt::format("blk.{}.attn_v.weight", layer)));
}

}  // namespace
}  // namespace dllm
