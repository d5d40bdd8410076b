// Contexts beyond those of training: keys that a request writes, and what the description reads from them.
#include "model/rope_request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/architecture.h"
#include "model/describe.h"
#include "model/describe_rope.h"
#include "model/hf_rope.h"
#include "model/key_reader.h"

namespace dllm {
namespace {

using Json = nlohmann::json;

ModelSource rope_source(const char* architecture = "llada") {
  ModelSource source;
  Metadata& meta = source.metadata;
  const auto key = [&](const char* tail) { return std::string(architecture) + "." + tail; };
  meta.set("general.architecture", MetaValue::string(architecture));
  meta.set(key("embedding_length"), MetaValue::u32(256));
  meta.set(key("attention.head_count"), MetaValue::u32(4));
  meta.set(key("context_length"), MetaValue::u32(4096));
  meta.set(key("rope.freq_base"), MetaValue::f32(500000));
  return source;
}

/// The rope of a description after the request; the head's length is that of rope_source().
Expected<ModelDesc> rescaled(const RopeRequest& request, ModelSource source = rope_source()) {
  DLLM_CHECK_OK(rescale_rope(request, source));
  DLLM_TRY(const auto name, source.metadata.string("general.architecture"));
  DLLM_TRY(const Architecture* architecture, find_architecture(*name));
  ModelDesc desc;
  architecture->set_defaults(desc);
  KeyReader keys(*architecture, source.metadata);
  desc.head_dim = 64;
  DLLM_TRY(desc.context_length, keys.dim("context_length", desc.context_length));
  DLLM_CHECK_OK(describe_rope(keys, desc));
  return desc;
}

TEST(RopeRequest, LeavesTheFileAloneIfNothingIsAsked) {
  ModelSource source = rope_source();
  const Metadata before = source.metadata;
  ASSERT_TRUE(rescale_rope({}, source));
  EXPECT_EQ(source.metadata.entries(), before.entries());
}

TEST(RopeRequest, LinearDividesPositions) {
  const auto desc = rescaled({"linear", 4});
  ASSERT_TRUE(desc) << desc.error().message();
  EXPECT_EQ(desc->rope_scale, 0.25f);
  EXPECT_EQ(desc->context_length, 16384);
  EXPECT_EQ(desc->rope_theta, 500000.f);
}

TEST(RopeRequest, NtkKeepsTheFastestPairAndSlowsTheSlowestByTheFactor) {
  const auto desc = rescaled({"ntk", 4});
  ASSERT_TRUE(desc) << desc.error().message();
  EXPECT_EQ(desc->rope_scale, 1.f);
  EXPECT_EQ(desc->context_length, 16384);
  // Pair j of 32 turns by theta^(-2j/64): the slowest one is j = 31.
  const auto slowest = [](double theta) { return std::pow(theta, -62.0 / 64); };
  EXPECT_NEAR(slowest(static_cast<double>(desc->rope_theta)) * 4, slowest(500000), slowest(500000) * 1e-5);
}

TEST(RopeRequest, YarnTakesTheTrainedContext) {
  const auto desc = rescaled({"yarn", 2});
  ASSERT_TRUE(desc) << desc.error().message();
  EXPECT_EQ(desc->rope_yarn.factor, 2.f);
  EXPECT_EQ(desc->rope_yarn.original_context, 4096.f);
  EXPECT_NEAR(desc->rope_yarn.magnitude, 0.1 * std::log(2.0) + 1, 1e-6);
  EXPECT_EQ(desc->context_length, 8192);
  const auto named = rescaled({"yarn", 2, 1000});
  EXPECT_EQ(named->rope_yarn.original_context, 1000.f);
  EXPECT_EQ(named->context_length, 2000);
}

TEST(RopeRequest, ReplacesTheFilesOwnScaling) {
  ModelSource source = rope_source("dream");
  source.metadata.set("dream.rope.scaling.type", MetaValue::string("yarn"));
  source.metadata.set("dream.rope.scaling.factor", MetaValue::f32(8));
  source.metadata.set("dream.rope.scaling.original_context_length", MetaValue::u32(512));
  source.metadata.set("dream.rope.scaling.attn_factor", MetaValue::f32(3));
  const auto none = rescaled({"none"}, source);
  ASSERT_TRUE(none) << none.error().message();
  EXPECT_EQ(none->rope_yarn.factor, 1.f);
  EXPECT_EQ(none->context_length, 512);
  const auto linear = rescaled({"linear", 2}, source);
  EXPECT_EQ(linear->rope_yarn.factor, 1.f);
  EXPECT_EQ(linear->rope_yarn.magnitude, 1.f);
  EXPECT_EQ(linear->rope_scale, 0.5f);
  EXPECT_EQ(linear->context_length, 1024);
  EXPECT_NEAR(rescaled({"yarn", 2}, source)->rope_yarn.magnitude, 0.1 * std::log(2.0) + 1, 1e-6);
}

TEST(RopeRequest, AFileOfLinearScalingWasTrainedOnAShorterContext) {
  ModelSource source = rope_source("dream");
  source.metadata.set("dream.rope.scaling.type", MetaValue::string("linear"));
  source.metadata.set("dream.rope.scaling.factor", MetaValue::f32(4));
  EXPECT_EQ(rescaled({"none"}, source)->context_length, 1024);
  EXPECT_EQ(rescaled({"linear", 2}, source)->context_length, 2048);
  EXPECT_EQ(rescaled({"linear", 2}, source)->rope_scale, 0.5f);
  source.metadata.erase("dream.rope.scaling.type");  // a factor alone is linear
  EXPECT_EQ(rescaled({"none"}, source)->context_length, 1024);
}

TEST(RopeRequest, WrongOnesAreRefused) {
  struct Case {
    RopeRequest request;
    const char* where;
  };
  for (const Case& one : {Case{{"dynamic", 2}, "--rope-scaling"}, Case{{"linear", 0}, "--rope-scale"},
                          Case{{"linear", 1}, "--rope-scale"}, Case{{"yarn", std::nan("")}, "--rope-scale"},
                          Case{{"", 2}, "--rope-scale"}, Case{{"none", 2}, "--rope-scale"},
                          Case{{"", 0, 5}, "--rope-original-context"}, Case{{"linear", 1e9}, "--rope-scale"}}) {
    const auto desc = rescaled(one.request);
    ASSERT_FALSE(desc) << one.request.scaling;
    EXPECT_EQ(desc.error().code, ErrorCode::kUsage);
    EXPECT_EQ(desc.error().where, one.where);
  }
  ModelSource source = rope_source("llama");
  source.tensors.emplace_back().name = "rope_freqs.weight";
  EXPECT_EQ(rescaled({"linear", 2}, source).error().code, ErrorCode::kUnsupported);
}

TEST(HfRope, LinearScalingIsRead) {
  const auto read = [](const Json& scaling) {
    return rope_from_hf(HfConfig::of({{"rope_scaling", scaling}}, "config.json"));
  };
  const auto rope = read({{"type", "linear"}, {"factor", 4.0}});
  ASSERT_TRUE(rope) << rope.error().message();
  Metadata meta;
  set_rope_metadata("dream", *rope, meta);
  EXPECT_EQ(**meta.string("dream.rope.scaling.type"), "linear");
  EXPECT_EQ(**meta.number("dream.rope.scaling.factor"), 4.0);
  EXPECT_FALSE(read({{"type", "linear"}}));
  EXPECT_FALSE(read({{"type", "linear"}, {"factor", -1}}));
  const auto dynamic = read({{"rope_type", "dynamic"}, {"factor", 2.0}});
  ASSERT_FALSE(dynamic);
  EXPECT_NE(dynamic.error().hint.find("--rope-scaling ntk"), std::string::npos);
}

}  // namespace
}  // namespace dllm
