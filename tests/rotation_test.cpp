// A model that `dllm quantize --rotate` has rotated computes what the original computes, for every architecture whose
// parts can be rotated, and loses less where single channels are outliers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "dllm/model.h"
#include "golden_model.h"
#include "quant/calibrated.h"

namespace dllm {
namespace {

using test::GoldenModel;

Expected<WriteReport> rotate(const std::string& from, const std::string& to, Rotation rotation,
                             const std::string& type = "F32") {
  auto source = open_source(from);
  if (!source) return source.error();
  WriteOptions options;
  options.type = type;
  options.threads = 2;
  options.rotation = rotation;
  return write_quantized(*source, options, {}, to);
}

std::vector<float> logits_of(const std::string& path, const std::vector<std::int32_t>& ids) {
  auto model = LanguageModel::load(path);
  EXPECT_TRUE(model) << path << ": " << model.error().message();
  auto logits = model ? model->logits(ids, /*causal=*/false) : std::vector<float>();
  EXPECT_TRUE(logits);
  return logits ? *logits : std::vector<float>();
}

/// Largest difference, relative to the largest logit.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0, scale = 1e-9;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    most = std::max(most, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    scale = std::max(scale, std::fabs(static_cast<double>(a[i])));
  }
  return most / scale;
}

class Rotated : public ::testing::TestWithParam<const char*> {};

TEST_P(Rotated, ComputesTheSame) {
  const GoldenModel golden(GetParam());
  const test::TempDirectory directory;
  const auto plain = logits_of(golden.path(), golden.ids());
  for (const Rotation rotation : {Rotation::kHeads, Rotation::kQuarot}) {
    const std::string to = directory.file(rotation == Rotation::kHeads ? "heads.gguf" : "quarot.gguf");
    const auto report = rotate(golden.path(), to, rotation);
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_LT(difference(plain, logits_of(to, golden.ids())), 1e-5);
    const auto again = rotate(to, directory.file("twice.gguf"), rotation);
    ASSERT_FALSE(again);
    EXPECT_NE(again.error().message().find("rotated already"), std::string::npos);
  }
  // The rotated source is gone.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 2);
}

INSTANTIATE_TEST_SUITE_P(Models, Rotated,
                         ::testing::Values("qwen2", "qwen3", "qwen3moe", "sdar", "sdar-moe", "llada-moe", "llada2",
                                           "llada2.2", "rnd1", "fast-dllm-v2", "nemotron"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
                           return name;
                         });

TEST(Rotation, ModelsWithOtherPartsAreRefused) {
  const test::TempDirectory directory;
  for (const char* name : {"mdlm", "diffusion-gemma"}) {
    const GoldenModel golden(name);
    const auto report = rotate(golden.path(), directory.file("x.gguf"), Rotation::kQuarot);
    ASSERT_FALSE(report) << name;
    EXPECT_EQ(report.error().code, ErrorCode::kUnsupported) << report.error().message();
    EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  }
}

TEST(Rotation, SpreadsOutliersOfChannels) {
  // Four channels of the stream are 30 times as large before every product; the embedded model's answers need them.
  const test::TempDirectory directory;
  const std::vector<std::int32_t> ids = {762, 764, 267, 765, 266, 767, 767, 15, 16, 767, 220};
  const std::string plain = DLLM_SOURCE_DIR "/models/tiny-llada-f32.gguf";
  auto source = *open_source(plain);
  std::vector<std::vector<float>> kept;
  for (SourceTensor& tensor : source.tensors) {
    const bool reads = tensor.name.find("attn_q.") != std::string::npos ||
                       tensor.name.find("ffn_up.") != std::string::npos ||
                       tensor.name.find("ffn_gate.") != std::string::npos;
    if (!reads) continue;
    const auto* values = reinterpret_cast<const float*>(tensor.data.data());
    kept.emplace_back(values, values + element_count(tensor.shape));
    for (std::size_t i = 0; i < kept.back().size(); i += 32) kept.back()[i] *= 30;
    tensor.data = std::as_bytes(std::span(kept.back()));
  }
  WriteOptions exact;
  exact.type = "F32";
  ASSERT_TRUE(write_model(source, exact, directory.file("outliers.gguf")));
  const auto wanted = logits_of(directory.file("outliers.gguf"), ids);
  double error[2];
  for (const Rotation rotation : {Rotation::kNone, Rotation::kQuarot}) {
    const bool on = rotation != Rotation::kNone;
    const std::string to = directory.file(on ? "on.gguf" : "off.gguf");
    ASSERT_TRUE(rotate(directory.file("outliers.gguf"), to, rotation, "Q4_0"));
    double sum = 0;
    const auto got = logits_of(to, ids);
    for (std::size_t i = 0; i < wanted.size(); ++i) sum += std::pow(static_cast<double>(got[i] - wanted[i]), 2);
    error[on ? 1 : 0] = std::sqrt(sum / static_cast<double>(wanted.size()));
  }
  EXPECT_LT(error[1], 0.7 * error[0]) << "rotated " << error[1] << ", plain " << error[0];
}

}  // namespace
}  // namespace dllm
