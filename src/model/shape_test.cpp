#include "model/shape.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "model/architecture.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {
namespace {

ModelSource source_of(std::string_view name, const ShapeOverrides& overrides = {}) {
  const auto shape = find_shape(name);
  if (!shape) return ADD_FAILURE() << shape.error().message(), ModelSource{};
  auto source = shape_source(**shape, overrides);
  if (!source) return ADD_FAILURE() << source.error().message(), ModelSource{};
  return *std::move(source);
}

std::int64_t parameters(const ModelSource& source) {
  std::int64_t count = 0;
  for (const SourceTensor& tensor : source.tensors) count += element_count(tensor.shape);
  return count;
}

TEST(Shape, ParameterCountsAreThePublishedOnes) {
  // Numbers of the model cards; shapes of our own have none to be compared with.
  const std::map<std::string_view, std::int64_t> published = {
      {"llada-8b", 8'015'581'184},        {"llada-1.5", 8'015'581'184},  {"dream-7b", 7'615'616'512},
      {"llama-3-8b", 8'030'261'248},      {"rnd1-30b", 30'532'122'624},  {"sdar-1.7b", 1'720'574'976},
      {"sdar-4b", 4'022'468'096},         {"sdar-8b", 8'190'735'360},    {"fast-dllm-v2-1.5b", 1'543'714'304},
      {"fast-dllm-v2-7b", 7'615'616'512}, {"qwen2.5-7b", 7'615'616'512}, {"wedlm-8b", 8'190'735'360},
      {"idlm-8b", 8'190'735'360},         {"refusion-8b", 8'190'735'360}};
  // Cards that round: 7.36 and 16.26 billion (model cards of LLaDA-MoE and LLaDA2.0-mini).
  EXPECT_NEAR(static_cast<double>(parameters(source_of("llada-moe-7b"))), 7.36e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(parameters(source_of("llada2-mini"))), 16.3e9, 0.06e9);
  // Gemma 4 26B-A4B's card says 25.2; the self-conditioning is 18 million more.
  EXPECT_NEAR(static_cast<double>(parameters(source_of("diffusion-gemma-26b"))), 25.25e9, 0.05e9);
  // 3.8 and 13.5 billion in listings of the published weights, which do not count the adapters of the drafts.
  EXPECT_NEAR(static_cast<double>(parameters(source_of("nemotron-labs-diffusion-3b"))), 3.8e9, 0.05e9);
  EXPECT_NEAR(static_cast<double>(parameters(source_of("nemotron-labs-diffusion-14b"))), 13.5e9, 0.05e9);
  for (const auto& [name, count] : published) EXPECT_EQ(parameters(source_of(name)), count) << name;
  // mdlm-owt: embedding and head with a bias; 12 layers of q, k, v with biases, an output, two norms and the unit of
  // 4 x 768 with biases; one norm. The published 169.6 million hold conditioning, which is folded into the biases.
  EXPECT_EQ(parameters(source_of("mdlm-owt")),
            2 * 50258 * 768 + 50258 + 12 * (4 * 768 * 768 + 5 * 768 + 8 * 768 * 768 + 5 * 768) + 768);
  // Qwen3-0.6B's card says 0.6, Qwen2.5-Coder-0.5B's 0.49 billion, with the tied table counted once.
  EXPECT_EQ(parameters(source_of("tiny-a2d-0.6b")), 596'049'920);
  EXPECT_EQ(parameters(source_of("tiny-a2d-0.6b-bd3lm")), 596'049'920);
  EXPECT_EQ(parameters(source_of("tiny-a2d-coder-0.5b")), 494'032'768);
  EXPECT_NEAR(static_cast<double>(parameters(source_of("stable-diffcoder-8b"))), 8.25e9, 0.01e9);
  // llada-100m: tied 16384 x 768; 12 layers of 4 x 768^2, 3 x 768 x 2048 and two norms; one norm.
  EXPECT_EQ(parameters(source_of("llada-100m")), 16384 * 768 + 12 * (4 * 768 * 768 + 3 * 768 * 2048 + 2 * 768) + 768);
}

TEST(Shape, DimensionsReachMetadataAndTensors) {
  const ModelSource llada = source_of("llada-8b");
  EXPECT_EQ(*llada.metadata.integer("llada.block_count"), 32);
  EXPECT_EQ(*llada.metadata.integer("tokenizer.ggml.mask_token_id"), 126336);
  EXPECT_EQ(*llada.metadata.string("general.size_label"), "8.0B");
  ASSERT_NE(llada.find("blk.31.ffn_down.weight"), nullptr);
  EXPECT_EQ(llada.find("blk.31.ffn_down.weight")->shape, (Shape{12288, 4096}));
  EXPECT_EQ(llada.find("output.weight")->shape, (Shape{4096, 126464}));
  const ModelSource dream = source_of("dream-7b");
  EXPECT_EQ(dream.find("blk.0.attn_k.weight")->shape, (Shape{3584, 512}));
  EXPECT_EQ(dream.find("blk.0.attn_k.bias")->shape, (Shape{512}));
  EXPECT_EQ(*dream.metadata.boolean("diffusion.shift_logits"), true);
  EXPECT_EQ(source_of("llama-tiny").find("output.weight"), nullptr);  // tied
}

TEST(Shape, EveryArchitectureHasAShapeAndEveryShapeAnArchitecture) {
  std::set<std::string> covered;
  for (const ModelShape& shape : model_shapes()) {
    const auto source = shape_source(shape);
    ASSERT_TRUE(source) << shape.name << ": " << source.error().message();
    covered.insert(source->metadata.string("general.architecture")->value());
  }
  for (const Architecture& architecture : architectures())
    EXPECT_TRUE(covered.contains(std::string(architecture.name)) || architecture.hf_architectures.empty() ||
                architecture.build_context)  // a drafter has the shape of its target
        << architecture.name;
}

TEST(Shape, TokenizersWork) {
  for (const ModelShape& shape : model_shapes()) {
    const auto source = shape_source(shape);
    ASSERT_TRUE(source);
    auto spec = Tokenizer::spec_from_gguf(source->metadata);
    ASSERT_TRUE(spec) << shape.name << ": " << spec.error().message();
    const auto tokenizer = Tokenizer::create(*std::move(spec));
    ASSERT_TRUE(tokenizer) << shape.name << ": " << tokenizer.error().message();
    const std::string text = "Why is the sky blue? \xc3\xa4\n";
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, false), true), text) << shape.name;
    EXPECT_GE(tokenizer->decode({700}, false).size(), 3u) << "a made-up word";
    for (const ShapeToken& token : shape.tokens) EXPECT_TRUE(tokenizer->find(token.text)) << token.text;
  }
}

TEST(Shape, OverridesKeepTheModelSound) {
  const ModelSource cut = source_of("llada-8b", {.layers = 3, .vocab = 4096, .context = 77});
  EXPECT_EQ(cut.find("blk.3.attn_q.weight"), nullptr);
  EXPECT_EQ(cut.find("token_embd.weight")->shape, (Shape{4096, 4096}));
  EXPECT_EQ(*cut.metadata.integer("llada.context_length"), 77);
  // Four distinct tokens move to the end, in the order of their published ids.
  EXPECT_EQ(*cut.metadata.integer("tokenizer.ggml.bos_token_id"), 4092);
  EXPECT_EQ(*cut.metadata.integer("tokenizer.ggml.eos_token_id"), 4093);
  EXPECT_EQ(*cut.metadata.integer("tokenizer.ggml.padding_token_id"), 4093);
  EXPECT_EQ(*cut.metadata.integer("tokenizer.ggml.eot_token_id"), 4095);
  const ModelShape& llada = **find_shape("llada-8b");
  EXPECT_FALSE(shape_source(llada, {.layers = 0, .vocab = {}, .context = {}}));
  EXPECT_FALSE(shape_source(llada, {.layers = {}, .vocab = 256, .context = {}}));
  EXPECT_FALSE(shape_source(llada, {.layers = {}, .vocab = {}, .context = 1 << 30}));
}

TEST(Shape, UnknownNamesListTheKnown) {
  const auto shape = find_shape("llada-9b");
  ASSERT_FALSE(shape);
  EXPECT_EQ(shape.error().code, ErrorCode::kUsage);
  EXPECT_NE(shape.error().hint.find("llada-8b"), std::string::npos);
}

}  // namespace
}  // namespace dllm
