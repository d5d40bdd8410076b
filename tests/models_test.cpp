// Every architecture against an independent forward pass (PyTorch, float64; golden/models/references.py): the tiny
// Hugging Face checkpoint, the GGUF converted from it, and the loop that decodes it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "dllm/model.h"
#include "golden_model.h"
#include "model/hf_text.h"
#include "model/model.h"
#include "model/testing/hf_directory.h"

namespace dllm {
namespace {

using nlohmann::json;
using test::deviation;
using test::GoldenModel;
using test::TempDirectory;

class GoldenModels : public ::testing::TestWithParam<std::string> {
 protected:
  static LanguageModel load(const std::string& path, std::int32_t threads = 2) {
    LoadOptions options;
    options.threads = threads;
    auto model = LanguageModel::load(path, options);
    if (!model) throw std::runtime_error(model.error().message());
    return *std::move(model);
  }
};

TEST_P(GoldenModels, LogitsAgreeToOneInTenThousand) {
  const GoldenModel golden(GetParam());
  const auto logits = load(golden.path()).logits(golden.ids(), false);
  ASSERT_TRUE(logits) << logits.error().message();
  EXPECT_LT(deviation(*logits, golden.logits()), 1e-4);
}

TEST_P(GoldenModels, GgufsHoldTheSameModel) {
  const GoldenModel golden(GetParam());
  const auto from_hf = load(golden.path(), 1).logits(golden.ids(), false);
  const auto from_gguf = load(golden.write_gguf("F32")).logits(golden.ids(), false);
  ASSERT_TRUE(from_hf && from_gguf);
  EXPECT_EQ(*from_hf, *from_gguf);
}

TEST_P(GoldenModels, QuantizedGgufsComeClose) {
  const GoldenModel golden(GetParam());
  const std::string path = golden.write_gguf("Q8_0");
  const auto quantized = load(path).logits(golden.ids(), false);
  ASSERT_TRUE(quantized);
  const auto described = Model::load(path);
  ASSERT_TRUE(described);
  for (const SourceTensor& tensor : (*described)->tensors()) {
    const bool stays = tensor.shape.size() == 1 || tensor.name.ends_with("ffn_gate_inp.weight");
    EXPECT_EQ(tensor.type, stays ? TensorType::kF32 : TensorType::kQ8_0) << tensor.name;
  }
  // Rounding changes the choice of experts, whose random scores can be arbitrarily close: no bound holds then.
  if ((*described)->desc().experts.count > 0) {
    EXPECT_TRUE(std::ranges::all_of(*quantized, [](float z) { return std::isfinite(z); }));
  } else {
    EXPECT_LT(deviation(*quantized, golden.logits()), 0.05);
  }
}

TEST_P(GoldenModels, DecodeTheSameWithAnExactCacheAndWithout) {
  const GoldenModel golden(GetParam());
  const LanguageModel model = load(golden.write_gguf("F32"));
  const auto described = Model::load(golden.path());
  ASSERT_TRUE(described) << described.error().message();
  const ModelDesc& desc = (*described)->desc();
  const bool autoregressive = desc.autoregressive();
  GenerateOptions options;
  options.length = 20;
  options.exact_length = true;
  const std::vector<std::int32_t> prompt = {104, 101, 108, 108, 111};
  if (desc.causal_block == 0) {  // no cache is exact under full attention
    const auto answer = model.generate_ids(prompt, options);
    ASSERT_TRUE(answer) << answer.error().message();
    EXPECT_EQ(answer->stats.committed_tokens, 20);
    return;
  }
  options.cache.name = "block-causal";
  const auto cached = model.generate_ids(prompt, options);
  options.cache.name = "none";
  const auto uncached = model.generate_ids(prompt, options);
  ASSERT_TRUE(cached && uncached);
  EXPECT_EQ(cached->ids, uncached->ids);
  EXPECT_EQ(cached->stats.nfe, uncached->stats.nfe);
  EXPECT_LT(cached->stats.rows_forwarded, uncached->stats.rows_forwarded);
  if (autoregressive) {
    EXPECT_EQ(cached->stats.nfe, 20);
    EXPECT_EQ(cached->stats.rows_forwarded, static_cast<std::int64_t>(prompt.size()) + 19);
  }
}

std::vector<double> golden_array(const std::string& name) {
  const auto array = parse_npy(test::read_file(std::string(test::kGoldenModels) + name + ".npy"), name);
  return {array->values.begin(), array->values.end()};
}

TEST(GoldenNemotron, ReadsCausallyToo) {
  const GoldenModel golden("nemotron");
  LoadOptions options;
  options.threads = 2;
  const auto model = LanguageModel::load(golden.write_gguf("F32"), options);
  ASSERT_TRUE(model) << model.error().message();
  const auto logits = model->logits(golden.ids(), /*causal=*/true);
  ASSERT_TRUE(logits) << logits.error().message();
  EXPECT_LT(deviation(*logits, golden_array("nemotron-causal")), 1e-4);
  EXPECT_GT(deviation(*logits, golden.logits()), 0.01) << "the mask makes no difference";
}

std::string import_error(const std::string& model, const GoldenModel::Damage& damage) {
  const GoldenModel golden(model, damage);
  const auto source = source_from_hf(golden.path());
  return source ? "" : source.error().message();
}

TEST(GoldenModelImport, ChecksWhatItStacks) {
  using Checkpoint = test::HfCheckpoint;
  const std::string expert = "model.layers.1.mlp.experts.3.up_proj.weight";
  EXPECT_NE(import_error("llada-moe", [&](Checkpoint& c) { c.erase(expert); }).find("expert 3 is missing"),
            std::string::npos);
  EXPECT_NE(import_error("llada-moe", [&](Checkpoint& c) { c.set(expert, {16, 64}); }).find("experts are alike"),
            std::string::npos);
  // The number of experts is config.json's.
  EXPECT_NE(import_error("llada-moe", [&](Checkpoint& c) { c.config["num_experts"] = 9; }).find("shape [64, 8]"),
            std::string::npos);
  EXPECT_NE(import_error("llada2", [&](Checkpoint& c) { c.set("model.layers.1.mlp.gate.other", {16}); })
                .find("the architecture has no such tensor"),
            std::string::npos);
  EXPECT_NE(import_error("llada2", [&](Checkpoint& c) { c.config["num_key_value_heads"] = 1; })
                .find("is not that of 128 rows of Q and 32 each of K and V"),
            std::string::npos);
  for (const auto& [key, value] : {std::pair<const char*, json>{"use_qkv_bias", true},
                                   {"score_function", "softmax"},
                                   {"use_qk_norm", false},
                                   {"rope_scaling", {{"type", "yarn"}}}})
    EXPECT_NE(import_error("llada2", [&](Checkpoint& c) { c.config[key] = value; }).find(key), std::string::npos);
  for (const auto& [key, value] : {std::pair<const char*, json>{"clip_qkv", 8.0},
                                   {"moe_layer_freq", {0, 1}},
                                   {"shared_expert_intermediate_size", 32},
                                   {"moe_router_enable_expert_bias", true}})
    EXPECT_NE(import_error("llada-moe", [&](Checkpoint& c) { c.config[key] = value; }).find(key), std::string::npos);
}

TEST(GoldenModelImport, RopeParametersAreReadOrRefused) {
  using Checkpoint = test::HfCheckpoint;
  const auto error = [](const char* key, const json& value) {
    return import_error("nemotron", [&](Checkpoint& c) { c.config["rope_parameters"][key] = value; });
  };
  EXPECT_EQ(error("attention_factor", 1.5), "");
  EXPECT_NE(error("rope_type", "longrope").find("longrope"), std::string::npos);
  EXPECT_NE(error("low_freq_factor", 1.0).find("low_freq_factor"), std::string::npos);
  EXPECT_NE(error("factor", 0.5).find("below 1"), std::string::npos);
  EXPECT_NE(error("beta_fast", "many").find("beta_fast is not a number"), std::string::npos);
  EXPECT_NE(error("truncate", false).find("truncate"), std::string::npos);
  // What the checkpoint carries for quantized caches, the model does not read.
  EXPECT_EQ(import_error("nemotron", [](Checkpoint& c) { c.set("encoder.layers.0.self_attn.k_scale", {1}); }), "");
}

TEST(GoldenModelImport, FoldedCheckpointsAreCheckedTensorByTensor) {
  using Checkpoint = test::HfCheckpoint;
  const auto error = [](const GoldenModel::Damage& damage) { return import_error("mdlm", damage); };
  EXPECT_NE(error([](Checkpoint& c) { c.config["time_conditioning"] = true; }).find("time_conditioning"),
            std::string::npos);
  EXPECT_NE(error([](Checkpoint& c) { c.config["n_heads"] = 3; }).find("not a multiple of n_heads"), std::string::npos);
  EXPECT_NE(error([](Checkpoint& c) { c.config["n_blocks"] = 3; }).find("blocks.2"), std::string::npos);
  EXPECT_NE(error([](Checkpoint& c) { c.config["n_blocks"] = 1; }).find("no such tensor"), std::string::npos);
  EXPECT_NE(error([](Checkpoint& c) { c.erase("backbone.sigma_map.mlp.2.bias"); }).find("sigma_map.mlp.2.bias"),
            std::string::npos);
  EXPECT_NE(error([](Checkpoint& c) { c.erase("backbone.sigma_map.mlp.0.weight"); }).find("sigma_map.mlp.0.weight"),
            std::string::npos);
  EXPECT_NE(error([](Checkpoint& c) { c.set("backbone.blocks.1.mlp.0.weight", {64, 64}); }).find("config.json asks"),
            std::string::npos);
  EXPECT_EQ(error([](Checkpoint& c) { c.set("backbone.rotary_emb.inv_freq", {8}); }), "");
  // Without a key, the mask is the row after the tokenizer's last.
  const GoldenModel golden("mdlm", [](Checkpoint& c) { c.config.erase("mask_token_id"); });
  const auto source = source_from_hf(golden.path());
  ASSERT_TRUE(source) << source.error().message();
  EXPECT_EQ(*source->metadata.integer("tokenizer.ggml.mask_token_id"), 271);
}

TEST(GoldenModelImport, ThePublishedMaskStandsInWhereNoFileNamesOne) {
  const TempDirectory directory;
  test::HfCheckpoint checkpoint = test::make_checkpoint({});
  checkpoint.config.erase("mask_token_id");
  for (json& token : checkpoint.tokenizer["added_tokens"])
    if (token["content"] == "<|mdm_mask|>") token["content"] = "<|reserved|>";
  checkpoint.write(directory.path());
  const auto config = HfConfig::parse(test::read_text(directory.file("config.json")), "config.json");
  ASSERT_TRUE(config);
  const auto mask_with = [&](TokenId published) -> std::optional<std::int64_t> {
    Metadata meta;
    std::vector<std::string> warnings;
    if (!add_hf_text(directory.path(), *config, {test::kTinyRows, published}, meta, warnings)) return std::nullopt;
    return *meta.integer("tokenizer.ggml.mask_token_id");
  };
  EXPECT_EQ(mask_with(260), 260);                              // a control token
  EXPECT_EQ(mask_with(265), 265);                              // a row without a token
  EXPECT_EQ(mask_with(70), std::nullopt);                      // a word
  EXPECT_EQ(mask_with(test::kTinyRows + 1000), std::nullopt);  // not of this vocabulary
}

TEST(ScaledPositions, FlagsDoWhatAConfigurationDoes) {
  const auto logits = [](const GoldenModel& golden, const LoadOptions& load) {
    auto model = LanguageModel::load(golden.path(), load);
    if (!model) throw std::runtime_error(model.error().message());
    return *model->logits(golden.ids(), false);
  };
  for (const char* name : {"qwen2", "sdar"}) {
    const GoldenModel plain(name);
    const auto scaled = [&](const json& scaling) {
      return GoldenModel(name, [&](test::HfCheckpoint& checkpoint) { checkpoint.config["rope_scaling"] = scaling; });
    };
    const auto unscaled = logits(plain, {});
    const GoldenModel linear = scaled({{"type", "linear"}, {"factor", 3.0}});
    const GoldenModel yarn = scaled({{"rope_type", "yarn"}, {"factor", 3.0}, {"original_max_position_embeddings", 64}});
    LoadOptions load;
    load.rope_scale = 3;
    load.rope_scaling = "linear";
    EXPECT_EQ(logits(plain, load), logits(linear, {})) << name;
    EXPECT_NE(logits(plain, load), unscaled) << name;
    load.rope_scaling = "yarn";
    load.rope_original_context = 64;
    EXPECT_EQ(logits(plain, load), logits(yarn, {})) << name;
    load.rope_scaling = "ntk";
    EXPECT_NE(logits(plain, load), unscaled) << name;
    LoadOptions none;
    none.rope_scaling = "none";
    EXPECT_EQ(logits(linear, none), unscaled) << name;
    EXPECT_EQ(logits(yarn, none), unscaled) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, GoldenModels,
                         ::testing::Values("llada-moe", "llada2", "llada2.2", "rnd1", "sdar", "sdar-moe",
                                           "fast-dllm-v2", "qwen2", "qwen3", "qwen3moe", "nemotron", "mdlm",
                                           "a2d-qwen3", "a2d-qwen3-bd3lm", "a2d-qwen2", "a2d-llama",
                                           "stable-diffcoder"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::erase_if(name, [](unsigned char c) { return !std::isalnum(c); });
                           return name;
                         });

}  // namespace
}  // namespace dllm
