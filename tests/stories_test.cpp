// The autoregressive reference: a 260K-parameter Llama in llama2.c's file layout continues its published greedy story
// with the denoising loop (block length 1, append-only cache).
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "cpu/cpu_backend.h"
#include "engine/generate.h"
#include "engine/resolve.h"
#include "model/model.h"
#include "shared_data.h"

namespace dllm {
namespace {

constexpr TokenId kBos = 1;
constexpr std::size_t kReproducible = 364;  // characters that an independent float32 forward reproduces

/// llama2.c: seven int32, then float32 tensors in a fixed order. Its RoPE pairs are neighbours, which is the row order
/// of `llama` GGUFs, so tensors are used unchanged.
ModelSource read_llama2c(const std::string& path) {
  auto file = *MappedFile::open(path);
  std::array<std::int32_t, 7> header{};
  std::memcpy(header.data(), file->bytes().data(), sizeof header);
  const auto [width, ffn, layers, heads, kv_heads, vocab, context] = header;
  const std::int64_t kv_width = std::int64_t{width} / heads * kv_heads;
  ModelSource source;
  source.name = path;
  source.owner = file;
  const auto key = [&](const char* name, std::int64_t value) {
    source.metadata.set(std::string("llama.") + name, MetaValue::u32(static_cast<std::uint32_t>(value)));
  };
  source.metadata.set("general.architecture", MetaValue::string("llama"));
  key("embedding_length", width);
  key("feed_forward_length", ffn);
  key("block_count", layers);
  key("attention.head_count", heads);
  key("attention.head_count_kv", kv_heads);
  key("context_length", context);
  source.metadata.set("tokenizer.ggml.eos_token_id", MetaValue::u32(kBos));  // a story ends where the next begins

  std::size_t offset = sizeof header;
  const auto take = [&](const std::string& name, Shape shape) {
    const auto bytes = static_cast<std::size_t>(element_count(shape)) * sizeof(float);
    source.tensors.push_back({name, TensorType::kF32, std::move(shape), file->bytes().subspan(offset, bytes), 0});
    offset += bytes;
  };
  const auto per_layer = [&](const std::string& name, const Shape& shape) {
    for (int layer = 0; layer < layers; ++layer) take("blk." + std::to_string(layer) + "." + name, shape);
  };
  take("token_embd.weight", {width, vocab});
  per_layer("attn_norm.weight", {width});
  per_layer("attn_q.weight", {width, width});
  per_layer("attn_k.weight", {width, kv_width});
  per_layer("attn_v.weight", {width, kv_width});
  per_layer("attn_output.weight", {width, width});
  per_layer("ffn_norm.weight", {width});
  per_layer("ffn_gate.weight", {width, ffn});
  per_layer("ffn_down.weight", {ffn, width});
  per_layer("ffn_up.weight", {width, ffn});
  take("output_norm.weight", {width});
  return source;
}

/// tok512.bin: int32 longest piece, then per token float32 score, int32 length, bytes.
std::vector<std::string> read_pieces(const std::string& path, std::size_t count) {
  const std::string bytes = test::read_file(path);
  std::vector<std::string> pieces;
  std::size_t at = 4;
  while (pieces.size() < count) {
    std::int32_t length = 0;
    std::memcpy(&length, bytes.data() + at + 4, 4);
    pieces.push_back(bytes.substr(at + 8, static_cast<std::size_t>(length)));
    at += 8 + static_cast<std::size_t>(length);
  }
  return pieces;
}

std::string text_of(const std::vector<std::int32_t>& ids, const std::vector<std::string>& pieces) {
  std::string text;
  for (std::int32_t id : ids) {
    if (id < 0 || id == kBos) break;
    const std::string& piece = pieces[static_cast<std::size_t>(id)];
    const bool byte = piece.size() == 6 && piece.starts_with("<0x");  // "<0x0A>"
    text += byte ? std::string(1, static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16))) : piece;
  }
  return text.starts_with(" ") ? text.substr(1) : text;
}

std::string published_story(const std::string& path) {
  const std::string page = test::read_file(path);
  return page.substr(page.find("Once upon a time"), kReproducible);
}

TEST(Stories260K, GreedyTextIsThePublishedOne) {
  DLLM_REQUIRE_SHARED_DATA(data);
  const std::string folder = data + "/weights/stories260K/";
  auto model = Model::load(read_llama2c(folder + "stories260K.bin"));
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_TRUE((*model)->desc().autoregressive());
  EXPECT_TRUE((*model)->desc().tied_embeddings);
  for (const char* cache : {"block-causal", "none"}) {
    auto backend = CpuBackend::create((*model)->desc(), [&](StepShape shape) { return (*model)->build(shape); },
                                      (*model)->weights(), {});
    ASSERT_TRUE(backend) << backend.error().message();
    GenerateOptions options;
    options.length = 200;
    options.cache.name = cache;
    const auto resolved = resolve_options(options, (*model)->desc());
    ASSERT_TRUE(resolved) << resolved.error().message();
    const auto result = generate({**backend}, {kBos}, *resolved);
    ASSERT_TRUE(result) << result.error().message();
    EXPECT_EQ(result->stats.nfe, 200);
    const auto pieces = read_pieces(folder + "tok512.bin", 512);
    EXPECT_EQ(text_of(result->ids, pieces).substr(0, kReproducible), published_story(folder + "stories260K.md"));
  }
}

}  // namespace
}  // namespace dllm
