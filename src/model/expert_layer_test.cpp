// Files with experts from different converters: their keys are read correctly, and contradictions are errors.
#include "model/expert_layer.h"

#include <gtest/gtest.h>

#include <functional>

#include "model/describe.h"
#include "model/shape.h"

namespace dllm {
namespace {

/// Metadata of a shape, under its own name or another's.
Metadata metadata_of(std::string_view shape, std::string_view rename = "") {
  const ModelSource source = *shape_source(**find_shape(shape));
  if (rename.empty()) return source.metadata;
  const std::string own = **source.metadata.string("general.architecture");
  Metadata meta;
  for (const auto& [key, value] : source.metadata.entries())
    meta.set(key.starts_with(own + ".") ? std::string(rename) + key.substr(own.size()) : key, value);
  meta.set("general.architecture", MetaValue::string(std::string(rename)));
  return meta;
}

Expected<ModelDesc> described(const Metadata& meta) {
  const std::string name = **meta.string("general.architecture");
  const Architecture& architecture = **find_architecture(name);
  const Log silent([](LogLevel, const std::string&) {});
  return describe(architecture, meta, {1024, 1 << 20, true}, nullptr, silent);
}

TEST(ExpertKeys, ReachTheDescription) {
  const ModelDesc moe = *described(metadata_of("llada-moe-tiny"));
  EXPECT_EQ(moe.experts.count, 16);
  EXPECT_EQ(moe.experts.used, 4);
  EXPECT_EQ(moe.experts.width, 256);
  EXPECT_EQ(moe.experts.score, GateScore::kSoftmax);
  EXPECT_FALSE(moe.experts.normalize);
  EXPECT_EQ(moe.experts.groups, 0);
  EXPECT_EQ(moe.causal_block, 0);
  EXPECT_EQ(moe.logit_shift, 0);
  const ModelDesc llada2 = *described(metadata_of("llada2-tiny"));
  EXPECT_EQ(llada2.experts.score, GateScore::kSigmoid);
  EXPECT_EQ(llada2.experts.groups, 8);
  EXPECT_EQ(llada2.experts.groups_used, 4);
  EXPECT_EQ(llada2.experts.shared_width, 256);
  EXPECT_EQ(llada2.experts.leading_dense, 1);
  EXPECT_FLOAT_EQ(llada2.experts.scale, 2.5f);
  EXPECT_TRUE(llada2.experts.normalize);
  EXPECT_EQ(llada2.rope_dims, 16);
  EXPECT_EQ(llada2.causal_block, 32);
  EXPECT_EQ(llada2.block_origin, BlockOrigin::kAbsolute);
  EXPECT_TRUE(described(metadata_of("rnd1-tiny"))->experts.normalize);
  EXPECT_EQ(described(metadata_of("rnd1-tiny"))->logit_shift, 1);
}

TEST(ExpertKeys, FilesOfOthersLackSome) {
  Metadata meta = metadata_of("llada2-tiny");
  for (const char* key : {"expert_group_count", "expert_group_used_count", "expert_weights_norm", "expert_gating_func",
                          "expert_shared_feed_forward_length", "attention.causal"})
    meta.erase(std::string("llada2.") + key);
  meta.erase("diffusion.block_length");
  meta.erase("diffusion.shift_logits");
  const auto desc = described(meta);
  ASSERT_TRUE(desc) << desc.error().message();
  EXPECT_EQ(desc->experts.groups, 8);
  EXPECT_EQ(desc->experts.score, GateScore::kSigmoid);
  EXPECT_TRUE(desc->experts.normalize);
  EXPECT_EQ(desc->experts.shared_width, 256);
  EXPECT_EQ(desc->causal_block, 32);
  EXPECT_EQ(desc->logit_shift, 0);

  Metadata moe = metadata_of("llada-moe-tiny");
  moe.erase("llada-moe.expert_feed_forward_length");
  EXPECT_EQ(described(moe)->experts.width, 512 / 4);  // feed_forward_length by expert_used_count
  moe = metadata_of("llada-moe-tiny");
  moe.erase("llada-moe.feed_forward_length");
  EXPECT_EQ(described(moe)->experts.width, 256);
  moe.set("llada-moe.expert_weights_scale", MetaValue::f32(0.f));
  EXPECT_FLOAT_EQ(described(moe)->experts.scale, 1.f);
}

TEST(ExpertKeys, BlockRoutingTakesThePlaceOfGroups) {
  Metadata meta = metadata_of("llada2-tiny");
  meta.erase("llada2.expert_group_count");
  meta.erase("llada2.expert_group_used_count");
  meta.set("llada2.expert_capacity", MetaValue::u32(12));
  const auto desc = described(meta);
  ASSERT_TRUE(desc) << desc.error().message();
  EXPECT_EQ(desc->experts.capacity, 12);
  EXPECT_EQ(desc->experts.groups, 0);
}

TEST(ExpertKeys, TheGridOfBlocksIsThatOfTheMask) {
  Metadata meta = metadata_of("sdar-tiny");
  EXPECT_EQ(described(meta)->causal_block, 4);
  meta.set("diffusion.block_length", MetaValue::u32(16));
  EXPECT_EQ(described(meta)->causal_block, 16);
  meta = metadata_of("llada-moe-tiny");
  meta.set("diffusion.block_length", MetaValue::u32(16));
  EXPECT_EQ(described(meta)->causal_block, 0);
  EXPECT_EQ(described(meta)->block_length, 16);
}

TEST(ExpertKeys, LlamaCppsNameOfTheNetworkNeedsAMask) {
  Metadata meta = metadata_of("llada2-tiny", "bailingmoe2");
  const auto desc = described(meta);
  ASSERT_TRUE(desc) << desc.error().message();
  EXPECT_EQ(desc->causal_block, 32);
  meta.erase("tokenizer.ggml.mask_token_id");
  const auto autoregressive = described(meta);
  ASSERT_FALSE(autoregressive);
  EXPECT_EQ(autoregressive.error().code, ErrorCode::kUnsupported);
}

TEST(ExpertKeys, AutoregressiveModelsHaveNoMask) {
  for (const char* shape : {"qwen3-tiny", "llama-tiny"}) EXPECT_TRUE(described(metadata_of(shape))->autoregressive());
  for (const char* shape : {"sdar-tiny", "fast-dllm-v2-tiny", "rnd1-tiny"})
    EXPECT_FALSE(described(metadata_of(shape))->autoregressive());
}

struct ExpertDamage {
  const char* name;
  const char* shape;
  const char* key;
  MetaValue value;
  const char* text;
};

class DamagedExperts : public ::testing::TestWithParam<ExpertDamage> {};

TEST_P(DamagedExperts, AreAnErrorThatNamesTheKey) {
  Metadata meta = metadata_of(GetParam().shape);
  meta.set(GetParam().key, GetParam().value);
  const auto desc = described(meta);
  ASSERT_FALSE(desc);
  EXPECT_NE(desc.error().message().find(GetParam().text), std::string::npos) << desc.error().message();
}

const ExpertDamage kDamages[] = {
    {"NoExperts", "llada-moe-tiny", "llada-moe.expert_count", MetaValue::u32(0), "llada-moe.expert_count"},
    {"MoreUsedThanThere", "llada-moe-tiny", "llada-moe.expert_used_count", MetaValue::u32(17),
     "17 of 16 experts are used"},
    {"UnknownGate", "llada-moe-tiny", "llada-moe.expert_gating_func", MetaValue::u32(3), "gating function 3"},
    {"GroupsDoNotDivide", "llada2-tiny", "llada2.expert_group_count", MetaValue::u32(7), "expert_group_count"},
    {"GroupsTooFew", "llada2-tiny", "llada2.expert_group_used_count", MetaValue::u32(0), "0 of 8 groups"},
    {"GroupsAndBlocks", "llada2-tiny", "llada2.expert_capacity", MetaValue::u32(12), "by groups and by blocks"},
    {"PoolTooSmall", "rnd1-tiny", "rnd1.expert_capacity", MetaValue::u32(2), "a pool of 2"},
    {"PoolWithoutBlocks", "llada-moe-tiny", "llada-moe.expert_capacity", MetaValue::u32(8), "attention has none"},
    {"TooManyDense", "llada2-tiny", "llada2.leading_dense_block_count", MetaValue::u32(4), "4 of 3 layers are dense"},
    {"WidthIsText", "llada2-tiny", "llada2.expert_feed_forward_length", MetaValue::string("1"),
     "expert_feed_forward_length"},
    {"NegativeShared", "llada2-tiny", "llada2.expert_shared_feed_forward_length", MetaValue::i32(-1),
     "-1 is not a valid size"},
    {"PredictionLayers", "llada2-tiny", "llada2.nextn_predict_layers", MetaValue::u32(1), "nextn_predict_layers"},
};

INSTANTIATE_TEST_SUITE_P(ExpertKeys, DamagedExperts, ::testing::ValuesIn(kDamages),
                         [](const auto& damage) { return std::string(damage.param.name); });

TEST(FusedProjections, AreSplitIntoViews) {
  std::vector<std::byte> bytes(10 * 32 * sizeof(float));
  const std::vector<SourceTensor> fused = {
      {"blk.0.attn_qkv.weight", TensorType::kF32, {32, 10}, bytes, 0},
      {"blk.0.attn_qkv.bias", TensorType::kF32, {10}, std::span(bytes).first(40), 0},
      {"blk.0.attn_norm.weight", TensorType::kF32, {32}, std::span(bytes).first(128), 0}};
  const auto split = split_fused(fused, 6, 2);
  ASSERT_TRUE(split) << split.error().message();
  ASSERT_EQ(split->size(), 7u);
  EXPECT_EQ((*split)[1].name, "blk.0.attn_k.weight");
  EXPECT_EQ((*split)[1].shape, (Shape{32, 2}));
  EXPECT_EQ((*split)[1].data.data(), bytes.data() + 6 * 128);
  EXPECT_EQ((*split)[5].name, "blk.0.attn_v.bias");
  EXPECT_EQ((*split)[5].data.data(), bytes.data() + 32);
  EXPECT_FALSE(split_fused(fused, 6, 3));
}

}  // namespace
}  // namespace dllm
