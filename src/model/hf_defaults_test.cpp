// What is taken where a config.json or a GGUF file has no key, and what numbers and lists a config.json may hold.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/architecture.h"
#include "model/hf_rope.h"
#include "model/key_reader.h"

namespace dllm {
namespace {

using Json = nlohmann::json;

struct OriginalDefaults {
  const char* architecture;
  double theta, eps;
  std::int64_t context, kv_heads, head_dim;
};

/// The smallest configuration of each spelling: no key that has a default.
Json least_config(std::string_view architecture) {
  if (architecture == "llada") return {{"embedding_size", 512}, {"d_model", 256}, {"n_layers", 1}, {"n_heads", 16}};
  return {{"vocab_size", 512},         {"hidden_size", 256},          {"num_hidden_layers", 1},
          {"num_attention_heads", 16}, {"intermediate_size", 512},    {"num_experts", 8},
          {"num_experts_per_tok", 2},  {"moe_intermediate_size", 64}, {"expert_intermediate_size", 64}};
}

/// From the configuration class of each architecture's own code. 16 heads and a width of 256: kv_heads = 16 is "as many
/// as there are heads", head_dim = 16 "width / heads".
constexpr OriginalDefaults kOriginals[] = {
    {"llada", 10000, 1e-5, 1024, 16, 16},                    // configuration_llada.py, ModelConfig
    {"dream", 10000, 1e-6, 32768, 32, 16},                   // configuration_dream.py
    {"llama", 10000, 1e-6, 2048, 16, 16},                    // transformers, LlamaConfig
    {"llada-moe", 50000, 1e-5, 8192, 16, 16},                // configuration_lladamoe.py
    {"llada2", 10000, 1e-5, 16384, 16, 16},                  // configuration_llada2_moe.py
    {"rnd1", 10000, 1e-6, 32768, 4, 128},                    // configuration_rnd.py over transformers' Qwen3MoeConfig
    {"sdar", 10000, 1e-6, 32768, 32, 128},                   // configuration_sdar.py
    {"sdar-moe", 10000, 1e-6, 32768, 4, 16},                 // over Qwen3MoeConfig
    {"fast-dllm-v2", 10000, 1e-6, 32768, 32, 16},            // configuration.py, over Qwen2Config's values
    {"qwen2", 10000, 1e-6, 32768, 32, 16},                   // transformers, Qwen2Config
    {"qwen3", 10000, 1e-6, 32768, 32, 128},                  // transformers, Qwen3Config
    {"qwen3moe", 10000, 1e-6, 32768, 4, 16},                 // transformers, Qwen3MoeConfig
    {"a2d-qwen3", 10000, 1e-6, 32768, 32, 128},              // over Qwen3Config
    {"a2d-qwen2", 10000, 1e-6, 32768, 32, 16},               // over Qwen2Config
    {"a2d-llama", 10000, 1e-6, 2048, 16, 16},                // over LlamaConfig
    {"wedlm", 10000, 1e-6, 32768, 32, 16},                   // configuration_wedlm.py
    {"idlm", 10000, 1e-6, 32768, 32, 128},                   // configuration_sdar.py, its files' class
    {"refusion", 10000, 1e-6, 32768, 32, 128},               // configuration_qwen3.py of its repository
    {"stable-diffcoder", 10000, 1e-6, 2048, 16, 16},         // transformers, LlamaConfig
    {"nemotron_labs_diffusion", 1e6, 1e-5, 262144, 8, 128},  // transformers, Ministral3Config
};

Expected<Metadata> metadata_of(std::string_view architecture, const Json& json) {
  DLLM_TRY(const Architecture* found, find_architecture(architecture));
  return found->metadata_from_hf(HfConfig::of(json, "config.json"));
}

TEST(HfDefaults, AreThoseOfTheOriginalCode) {
  for (const OriginalDefaults& original : kOriginals) {
    const auto meta = metadata_of(original.architecture, least_config(original.architecture));
    ASSERT_TRUE(meta) << original.architecture << ": " << meta.error().message();
    const auto number = [&](std::string_view tail) {
      return (*meta->number(fmt::format("{}.{}", original.architecture, tail))).value_or(-1);
    };
    EXPECT_DOUBLE_EQ(number("rope.freq_base"), original.theta) << original.architecture;
    EXPECT_FLOAT_EQ(static_cast<float>(number("attention.layer_norm_rms_epsilon")), static_cast<float>(original.eps))
        << original.architecture;
    EXPECT_EQ(number("context_length"), static_cast<double>(original.context)) << original.architecture;
    EXPECT_EQ(number("attention.head_count_kv"), static_cast<double>(original.kv_heads)) << original.architecture;
    const double key_length = number("attention.key_length");
    EXPECT_EQ(key_length < 0 ? 16 : key_length, static_cast<double>(original.head_dim)) << original.architecture;
  }
}

/// An architecture that is not in the table has its defaults elsewhere: Ling's name is an alias for GGUF files, MDLM's
/// are constants, DiffusionGemma's are in diffusion_gemma_hf.cpp, drafters have Qwen3's.
TEST(HfDefaults, CoverEveryArchitecture) {
  for (const Architecture& architecture : architectures()) {
    const bool listed = std::ranges::find(kOriginals, architecture.name, [](const OriginalDefaults& one) {
                          return std::string_view(one.architecture);
                        }) != std::end(kOriginals);
    const bool elsewhere = architecture.name == "bailingmoe2" || architecture.name == "mdlm" ||
                           architecture.name == "diffusion-gemma" || architecture.name == "dflash";
    EXPECT_NE(listed, elsewhere) << architecture.name;
  }
}

/// llama.cpp takes 10000 for any architecture without the key (llama-model.cpp, rope_freq_base_train), so that is what
/// a file without it means.
TEST(GgufDefaults, TheBaseOfRopeIsLlamaCpps) {
  for (const Architecture& architecture : architectures()) {
    ModelDesc desc;
    architecture.set_defaults(desc);
    EXPECT_EQ(desc.rope_theta, 10000.f) << architecture.name;
  }
}

TEST(HfRope, TheThetaThatTransformersTakesWins) {
  const auto theta = [](const Json& json) { return rope_from_hf(HfConfig::of(json, "config.json"), 77)->theta; };
  EXPECT_EQ(theta(Json::object()), 77);
  EXPECT_EQ(theta({{"rope_theta", 1}}), 1);
  EXPECT_EQ(theta({{"rope_theta", 1}, {"rope_parameters", {{"rope_theta", 2}}}}), 2);
  EXPECT_EQ(theta({{"rope_parameters", {{"rope_theta", 2}}}}), 2);
  EXPECT_EQ(theta({{"rope_theta", 1}, {"rope_parameters", {{"rope_type", "default"}}}}), 1);
  EXPECT_EQ(theta({{"rope_theta", 1}, {"rope_scaling", {{"rope_type", "default"}, {"rope_theta", 3}}}}), 3);
  // rope_scaling replaces rope_parameters, theta included; an empty one does not.
  EXPECT_EQ(
      theta({{"rope_theta", 1}, {"rope_scaling", {{"type", "default"}}}, {"rope_parameters", {{"rope_theta", 2}}}}), 1);
  EXPECT_EQ(theta({{"rope_scaling", Json::object()}, {"rope_parameters", {{"rope_theta", 2}}}}), 2);
  EXPECT_EQ(theta({{"rope_scaling", nullptr}, {"rope_parameters", {{"rope_theta", 2}}}}), 2);
}

TEST(HfRope, PartsOfHeadsAreRefusedWhereHeadsTurnAsAWhole) {
  for (const char* architecture : {"llama", "qwen3", "dream", "sdar"}) {
    Json config = least_config(architecture);
    config["partial_rotary_factor"] = 0.5;
    EXPECT_FALSE(metadata_of(architecture, config)) << architecture;
    config["partial_rotary_factor"] = 1.0;
    EXPECT_TRUE(metadata_of(architecture, config)) << architecture;
    config["rope_parameters"] = {{"rope_theta", 10000.0}, {"partial_rotary_factor", 0.25}};
    EXPECT_FALSE(metadata_of(architecture, config)) << architecture;
  }
  Json config = least_config("llada2");
  config["rope_parameters"] = {{"rope_theta", 600000.0}, {"partial_rotary_factor", 0.25}};
  const auto meta = metadata_of("llada2", config);
  ASSERT_TRUE(meta) << meta.error().message();
  EXPECT_EQ(**meta->integer("llada2.rope.dimension_count"), 4);
}

TEST(LladaConfig, WhatItsCodeDoesNotReadIsRefused) {
  for (const auto& [key, value] : {std::pair<const char*, Json>{"rope_scaling", {{"type", "linear"}, {"factor", 2}}},
                                   {"clip_qkv", 8},
                                   {"scaling_factor", 2}}) {
    Json config = least_config("llada");
    config[key] = value;
    const auto meta = metadata_of("llada", config);
    ASSERT_FALSE(meta) << key;
    EXPECT_NE(meta.error().what.find(key), std::string::npos);
    config[key] = nullptr;
    EXPECT_TRUE(metadata_of("llada", config)) << key;
  }
}

TEST(DreamConfig, DreamOnIsRefusedByName) {
  for (const char* key : {"expand_token_id", "delete_token_id"}) {
    Json config = least_config("dream");
    config[key] = 500;
    const auto meta = metadata_of("dream", config);
    ASSERT_FALSE(meta) << key;
    EXPECT_EQ(meta.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(meta.error().what.find(key), std::string::npos);
    config[key] = nullptr;
    EXPECT_TRUE(metadata_of("dream", config)) << key;
    config["generation_config"] = {{key, 500}};
    EXPECT_FALSE(metadata_of("dream", config)) << key;
    config["generation_config"] = {{key, nullptr}};
    EXPECT_TRUE(metadata_of("dream", config)) << key;
  }
}

TEST(SdarConfig, TheBlockOfTrainingIsThatOfKeysOrName) {
  const auto block = [](Json extra, const std::string& file = "config.json") -> std::int64_t {
    Json config = least_config("sdar");
    config.update(extra);
    const auto found = (*find_architecture("sdar"))->metadata_from_hf(HfConfig::of(config, file));
    return found ? (*found->integer("diffusion.block_length")).value_or(-1) : 0;
  };
  EXPECT_EQ(block(Json::object()), 4);
  EXPECT_EQ(block({{"block_size", 16}}), 16);
  EXPECT_EQ(block({{"block_length", 8}}), 8);
  EXPECT_EQ(block({{"generation_config", {{"block_length", 64}}}}), 64);
  EXPECT_EQ(block({{"_name_or_path", "JetLM/SDAR-8B-Chat-b32"}}), 32);
  EXPECT_EQ(block(Json::object(), "/models/SDAR-1.7B-Chat-b16/config.json"), 16);
  EXPECT_EQ(block(Json::object(), "/hub/models--JetLM--SDAR-4B-Chat-b64/snapshots/0a1b/config.json"), 64);
  EXPECT_EQ(block({{"block_size", 4}}, "/models/SDAR-1.7B-Chat-b16/config.json"), 4) << "what is written counts";
  EXPECT_EQ(block(Json::object(), "/models/sdar-8b-chat/config.json"), 4) << "8b is its size";
  EXPECT_EQ(block(Json::object(), "/models/other-b32/config.json"), 4);
  EXPECT_EQ(block(Json::object(), "/models/SDAR-base/config.json"), 4);
  EXPECT_EQ(block({{"block_size", 0}}), 0) << "refused";
}

TEST(HfConfigNumbers, InfinityMattersOnlyWhereItIsRead) {
  const auto config = HfConfig::parse(
      R"({"limit": Infinity, "list": [0, -Infinity], "eps": NaN, "n": 4, "big": 18446744073709551615})", "config.json");
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(*config->integer("n"), 4);
  for (const auto& [key, shown] : {std::pair<const char*, const char*>{"limit", "Infinity"}, {"eps", "NaN"}}) {
    const auto number = config->number_or(key, 1);
    ASSERT_FALSE(number) << key;
    EXPECT_NE(number.error().what.find(shown), std::string::npos) << number.error().what;
    EXPECT_FALSE(config->integer(key));
  }
  EXPECT_FALSE(config->integer("big"));
  EXPECT_FALSE(config->expect("limit", 1));
}

TEST(HfConfigNumbers, ListsByLayerMustAgree) {
  const HfConfig config = HfConfig::of({{"eos_token_id", {7, 8}},
                                        {"num_key_value_heads", {4, 4, 4}},
                                        {"num_attention_heads", {4, 4, 2}},
                                        {"empty", Json::array()}},
                                       "config.json");
  EXPECT_EQ(*config.integer("eos_token_id"), 7);
  EXPECT_EQ(*config.integer("num_key_value_heads"), 4);
  const auto differs = config.integer("num_attention_heads");
  ASSERT_FALSE(differs);
  EXPECT_EQ(differs.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(differs.error().what.find("differs between layers"), std::string::npos);
  EXPECT_FALSE(config.integer("empty"));
}

TEST(KeyReaderLists, ListsByLayerMustAgree) {
  Metadata meta;
  meta.set("llama.attention.head_count_kv", MetaValue::i32s({2, 2, 2}));
  meta.set("llama.feed_forward_length", MetaValue::i32s({2, 3}));
  meta.set("llama.block_count", MetaValue::i32s({}));
  KeyReader keys(**find_architecture("llama"), meta);
  EXPECT_EQ(*keys.dim("attention.head_count_kv"), 2);
  const auto differs = keys.dim("feed_forward_length");
  ASSERT_FALSE(differs);
  EXPECT_EQ(differs.error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(keys.dim("block_count"));
}

}  // namespace
}  // namespace dllm
