#include "quant/make_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "model/model.h"
#include "model/testing/hf_directory.h"
#include "quant/random_weights.h"

namespace dllm {
namespace {

using test::TempDirectory;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string path_in(const TempDirectory& directory, const char* name) {
  return (std::filesystem::path(directory.path()) / name).string();
}

/// Mean and standard deviation of a tensor's values.
std::pair<double, double> moments(const SourceTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(element_count(tensor.shape)));
  codec(tensor.type).dequantize(tensor.data.data(), values.data(), static_cast<std::int64_t>(values.size()));
  double sum = 0, squares = 0;
  for (const float value : values) sum += value, squares += static_cast<double>(value) * value;
  const double count = static_cast<double>(values.size()), mean = sum / count;
  return {mean, std::sqrt(squares / count - mean * mean)};
}

TEST(NormalValues, HaveTheirMoments) {
  std::vector<float> values(1 << 16);
  normal_values(7, 0, 0, 0, values);
  double sum = 0, squares = 0, fourth = 0;
  for (const double x : values) sum += x, squares += x * x, fourth += x * x * x * x;
  const double n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0, 0.02);
  EXPECT_NEAR(squares / n, 1, 0.02);
  EXPECT_NEAR(fourth / n, 2.85, 0.08);  // 3 less the excess of Irwin-Hall, 6/5 / 8
  std::vector<float> tail(100);
  normal_values(7, 0, 0, 5000, tail);
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), values.begin() + 5000)) << "a function of the position alone";
}

TEST(RandomWeights, ComeInSmallPieces) {
  RandomWeights weights(0, 2);
  const Shape shape{4096, 20000};  // 164 MB of F16, which must never be in memory at once
  std::size_t largest = 0;
  std::int64_t total = 0;
  ASSERT_TRUE(weights.stream(0, "output.weight", shape, TensorType::kF16,
                             [&](std::span<const std::byte> bytes) -> Expected<void> {
                               largest = std::max(largest, bytes.size());
                               total += static_cast<std::int64_t>(bytes.size());
                               return {};
                             }));
  EXPECT_EQ(total, 2 * element_count(shape));
  EXPECT_LE(largest, std::size_t{16} << 20);
  // If the sink refuses, the stream ends at once.
  int calls = 0;
  EXPECT_FALSE(
      weights.stream(0, "output.weight", shape, TensorType::kF16, [&](std::span<const std::byte>) -> Expected<void> {
        ++calls;
        return Error{ErrorCode::kIo, "full", "", ""};
      }));
  EXPECT_EQ(calls, 1);
}

TEST(MakeModel, EveryTypeLoadsWithItsMoments) {
  const TempDirectory directory;
  for (const Recipe& recipe : recipes()) {
    const std::string path = path_in(directory, "model.gguf");
    MakeOptions options;
    options.type = recipe.name;
    const auto report = make_model(**find_shape("llada-tiny"), options, path);
    ASSERT_TRUE(report) << recipe.name << ": " << report.error().message();
    const auto model = Model::load(path);
    ASSERT_TRUE(model) << recipe.name << ": " << model.error().message();
    EXPECT_EQ(*(*model)->metadata().integer("general.file_type"), recipe.file_type);
    EXPECT_TRUE((*model)->tokenizer());
    for (const SourceTensor& tensor : (*model)->tensors()) {
      const auto [mean, deviation] = moments(tensor);
      const bool gain = tensor.name.ends_with("norm.weight");
      const double wanted = gain ? 0.1 : 1 / std::sqrt(static_cast<double>(tensor.shape.front()));
      EXPECT_NEAR(mean, gain ? 1 : 0, gain ? 0.03 : 0.02 * wanted + 0.001) << recipe.name << " " << tensor.name;
      const double wider = tensor.type == TensorType::kQ2_K ? 0.05 : 0.03;  // four levels
      EXPECT_NEAR(deviation / wanted, 1, gain ? 0.15 : wider) << recipe.name << " " << tensor.name;
    }
  }
}

TEST(MakeModel, BytesDependOnSeedAndShapeOnly) {
  const TempDirectory directory;
  const auto make = [&](const char* name, std::uint64_t seed, int threads) {
    MakeOptions options;
    options.type = "Q4_K_M";
    options.seed = seed;
    options.threads = threads;
    const std::string path = path_in(directory, name);
    const auto report = make_model(**find_shape("dream-tiny"), options, path);
    EXPECT_TRUE(report) << report.error().message();
    return read(path);
  };
  const std::string one = make("one.gguf", 1, 1);
  EXPECT_EQ(one, make("three.gguf", 1, 3));
  EXPECT_NE(one, make("other.gguf", 2, 1));
  EXPECT_GT(one.size(), 1u << 20);
}

TEST(MakeModel, TensorsDiffer) {
  const TempDirectory directory;
  const std::string path = path_in(directory, "model.gguf");
  ASSERT_TRUE(make_model(**find_shape("llada-tiny"), {}, path));
  const auto model = Model::load(path);
  ASSERT_TRUE(model);
  const auto find = [&](std::string_view name) -> const SourceTensor& {
    for (const SourceTensor& tensor : (*model)->tensors())
      if (tensor.name == name) return tensor;
    ADD_FAILURE() << name;
    return (*model)->tensors().front();
  };
  const auto q = find("blk.0.attn_q.weight").data, k = find("blk.0.attn_k.weight").data;
  EXPECT_FALSE(std::equal(q.begin(), q.end(), k.begin(), k.end()));
  const std::size_t row = q.size() / 256;
  EXPECT_FALSE(std::equal(q.begin(), q.begin() + static_cast<std::ptrdiff_t>(row),
                          q.begin() + static_cast<std::ptrdiff_t>(row),
                          q.begin() + static_cast<std::ptrdiff_t>(2 * row)));
}

TEST(MakeModel, FailuresLeaveTheTargetAlone) {
  const TempDirectory directory;
  const std::string path = path_in(directory, "model.gguf");
  std::ofstream(path) << "precious";
  const ModelShape& shape = **find_shape("llada-tiny");
  MakeOptions options;
  options.cancelled = [] { return true; };
  const auto cancelled = make_model(shape, options, path);
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
  options = {};
  options.type = "Q9_9";
  EXPECT_EQ(make_model(shape, options, path).error().code, ErrorCode::kUsage);
  EXPECT_EQ(make_model(shape, {}, directory.path()).error().code, ErrorCode::kUsage);
  EXPECT_EQ(make_model(shape, {}, path_in(directory, "no/such/model.gguf")).error().code, ErrorCode::kIo);
  EXPECT_EQ(read(path), "precious");
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    EXPECT_EQ(entry.path().filename(), "model.gguf");
}

}  // namespace
}  // namespace dllm
