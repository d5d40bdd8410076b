// A model that `dllm quantize --rotate` has rotated computes what the original computes, for every architecture whose
// parts can be rotated, and loses less where single channels are outliers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>

#include "dllm/model.h"
#include "golden_model.h"
#include "quant/calibrated.h"

namespace dllm {
namespace {

using test::GoldenModel;

Expected<WriteReport> rotate(const std::string& from, const std::string& to, Rotation rotation,
                             const std::string& type = "F32", std::int32_t order = 0) {
  auto source = open_source(from);
  if (!source) return source.error();
  WriteOptions options;
  options.type = type;
  options.threads = 2;
  options.rotation = rotation;
  options.rotation_order = order;
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
  const std::pair<Rotation, std::int32_t> kinds[] = {
      {Rotation::kHeads, 0}, {Rotation::kOffline, 0}, {Rotation::kQuarot, 0}, {Rotation::kQuarot, 4}};
  for (const auto& [rotation, order] : kinds) {
    const std::string to = directory.file(fmt::format("{}-{}.gguf", static_cast<int>(rotation), order));
    const auto report = rotate(golden.path(), to, rotation, "F32", order);
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_LT(difference(plain, logits_of(to, golden.ids())), 1e-5) << to;
    const auto again = rotate(to, directory.file("twice.gguf"), rotation);
    ASSERT_FALSE(again);
    EXPECT_NE(again.error().message().find("rotated already"), std::string::npos);
  }
  // The rotated source is gone.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), std::ssize(kinds));
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

/// A copy of the embedded model in which some rows or columns are 30 times as large: those with `large(tensor, i)`.
template <class Large>
std::string with_outliers(const test::TempDirectory& directory, const Large& large) {
  auto source = *open_source(DLLM_SOURCE_DIR "/models/tiny-llada-f32.gguf");
  std::vector<std::vector<float>> kept;
  kept.reserve(source.tensors.size());
  for (SourceTensor& tensor : source.tensors) {
    const auto* values = reinterpret_cast<const float*>(tensor.data.data());
    kept.emplace_back(values, values + element_count(tensor.shape));
    for (std::size_t i = 0; i < kept.back().size(); ++i)
      if (large(tensor, i)) kept.back()[i] *= 30;
    tensor.data = std::as_bytes(std::span(kept.back()));
  }
  WriteOptions exact;
  exact.type = "F32";
  EXPECT_TRUE(write_model(source, exact, directory.file("outliers.gguf")));
  return directory.file("outliers.gguf");
}

const std::vector<std::int32_t> kIds = {762, 764, 267, 765, 266, 767, 767, 15, 16, 767, 220};

/// Root mean square error of the logits of a file's model in Q4_0.
double rounding_error(const std::string& file, const std::string& to, Rotation rotation) {
  EXPECT_TRUE(rotate(file, to, rotation, "Q4_0"));
  const auto wanted = logits_of(file, kIds), got = logits_of(to, kIds);
  double sum = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) sum += std::pow(static_cast<double>(got[i] - wanted[i]), 2);
  return std::sqrt(sum / static_cast<double>(wanted.size()));
}

std::string rotated_parts(const std::string& file) {
  const auto source = open_source(file);
  if (!source) return source.error().message();
  const auto parts = source->metadata.string("dllm.quantization.rotated");
  return parts && *parts ? **parts : "?";
}

TEST(Rotation, SpreadsOutliersOfChannels) {
  // Four channels of the stream are 30 times as large before every product; the embedded model's answers need them.
  const test::TempDirectory directory;
  const std::string file = with_outliers(directory, [](const SourceTensor& tensor, std::size_t i) {
    const bool reads = tensor.name.find("attn_q.") != std::string::npos ||
                       tensor.name.find("ffn_up.") != std::string::npos ||
                       tensor.name.find("ffn_gate.") != std::string::npos;
    return reads && i % 32 == 0;
  });
  const double off = rounding_error(file, directory.file("off.gguf"), Rotation::kNone);
  const double on = rounding_error(file, directory.file("on.gguf"), Rotation::kOffline);
  EXPECT_LT(on, 0.7 * off) << "rotated " << on << ", plain " << off;
}

TEST(Rotation, OfEveryStepSpreadsOutliersBeforeTheDownProjection) {
  const test::TempDirectory directory;
  const std::string file = with_outliers(directory, [](const SourceTensor& tensor, std::size_t i) {
    return tensor.name.find("ffn_down.") != std::string::npos && i % 32 == 5;
  });
  const double offline = rounding_error(file, directory.file("offline.gguf"), Rotation::kOffline);
  const double online = rounding_error(file, directory.file("online.gguf"), Rotation::kQuarot);
  EXPECT_LT(online, 0.7 * offline) << "online " << online << ", offline " << offline;
}

std::optional<std::int64_t> order_of(const ModelSource& source, const char* key) {
  const auto order = source.metadata.integer(key);
  return order ? *order : std::nullopt;
}

TEST(Rotation, FilesNameWhatEveryStepRotates) {
  const test::TempDirectory directory;
  const std::string to = directory.file("quarot.gguf");
  for (const std::int32_t limit : {0, 16}) {
    ASSERT_TRUE(rotate(DLLM_SOURCE_DIR "/models/tiny-llada-f32.gguf", to, Rotation::kQuarot, "Q4_0", limit));
    const auto source = open_source(to);
    ASSERT_TRUE(source);
    // Programs that do not rotate its input must not find the matrix.
    EXPECT_EQ(source->find("blk.0.ffn_down.weight"), nullptr);
    ASSERT_NE(source->find("blk.0.ffn_down_hadamard.weight"), nullptr);
    const std::int64_t width = source->find("blk.0.ffn_down_hadamard.weight")->shape[0];
    EXPECT_EQ(order_of(*source, "dllm.rotation.ffn_down"), limit == 0 ? width : limit);
    EXPECT_EQ(order_of(*source, "dllm.rotation.query_key"), limit == 0 ? 32 : limit);
    EXPECT_NE(rotated_parts(to).find(fmt::format("query_key {}", limit == 0 ? 32 : limit)), std::string::npos);
  }
}

TEST(Rotation, DamagedKeysAreRefused) {
  const test::TempDirectory directory;
  const std::string to = directory.file("quarot.gguf");
  ASSERT_TRUE(rotate(DLLM_SOURCE_DIR "/models/tiny-llada-f32.gguf", to, Rotation::kQuarot));
  for (const auto& [key, value] : {std::pair<const char*, std::uint32_t>{"dllm.rotation.ffn_down", 7},
                                   {"dllm.rotation.query_key", 1},
                                   {"dllm.rotation.ffn_down_shexp", 16},
                                   {"dllm.rotation.ffn_down", 0}}) {
    auto source = open_source(to);
    ASSERT_TRUE(source);
    source->metadata.set(key, MetaValue::u32(value));
    WriteOptions exact;
    exact.type = "F32";
    ASSERT_TRUE(write_model(*source, exact, directory.file("damaged.gguf")));
    const auto model = LanguageModel::load(directory.file("damaged.gguf"));
    ASSERT_FALSE(model) << key;
    const std::string message = model.error().message();
    EXPECT_NE(message.find(value == 0 ? "ffn_down.weight" : key), std::string::npos) << message;
  }
}

TEST(Rotation, SelectiveTakesWhatHelps) {
  const test::TempDirectory directory;
  // One channel in eight of the values of layer 2's heads: columns of its output projection.
  const std::string file = with_outliers(directory, [](const SourceTensor& tensor, std::size_t i) {
    return tensor.name == "blk.2.attn_output.weight" && i % 8 == 3;
  });
  const double off = rounding_error(file, directory.file("off.gguf"), Rotation::kNone);
  const std::string to = directory.file("selective.gguf");
  const double selective = rounding_error(file, to, Rotation::kSelective);
  EXPECT_NE(rotated_parts(to).find("heads"), std::string::npos) << rotated_parts(to);
  EXPECT_NE(rotated_parts(to).find(" 2"), std::string::npos) << rotated_parts(to);
  EXPECT_LT(selective, 0.9 * off) << rotated_parts(to);
  // What it takes computes the same as the original.
  const auto exact = rotate(file, directory.file("f32.gguf"), Rotation::kSelective, "F32");
  ASSERT_TRUE(exact);
  EXPECT_EQ(rotated_parts(directory.file("f32.gguf")), "nothing") << "F32 rounds nothing";
}

}  // namespace
}  // namespace dllm
