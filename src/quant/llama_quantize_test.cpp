// Are quantized models those of llama-quantize, byte for byte? The hashes were recorded from llama.cpp
// (testdata/record_llama_quantize.py).

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/hash.h"
#include "model/testing/hf_directory.h"
#include "quant/convert.h"
#include "quant/importance.h"

namespace dllm {
namespace {

using nlohmann::json;

const std::string kRoot = DLLM_SOURCE_DIR;

json recorded() {
  std::ifstream file(kRoot + "/src/quant/testdata/llama_quantize.json");
  return json::parse(file, nullptr, false);
}

std::string hash_of(const std::string& path) {
  const auto source = open_source(path);
  if (!source) return source.error().message();
  std::vector<const SourceTensor*> tensors;
  for (const SourceTensor& tensor : source->tensors) tensors.push_back(&tensor);
  std::ranges::sort(tensors, {}, &SourceTensor::name);
  Fnv1a hash;
  for (const SourceTensor* tensor : tensors)
    hash.add(tensor->name).add_word(static_cast<std::uint32_t>(tensor->type)).add(tensor->data);
  return fmt::format("{:016x}", hash.value());
}

/// The script's importance_value().
float importance_value(const std::string& name, std::int64_t column) {
  return static_cast<float>((column * 7919 + static_cast<std::int64_t>(name.size()) * 31) % 1000 + 1) / 256.f;
}

/// In the older format, with each value twice as large for two calls.
std::string importance_file(const ModelSource& source) {
  std::string bytes;
  const auto put = [&bytes](const auto& value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  std::int32_t count = 0;
  put(count);
  for (const SourceTensor& tensor : source.tensors) {
    if (tensor.shape.size() < 2 || tensor.name == "token_embd.weight") continue;
    ++count;
    put(static_cast<std::int32_t>(tensor.name.size()));
    bytes += tensor.name;
    put(std::int32_t{2});
    put(static_cast<std::int32_t>(tensor.shape.front()));
    for (std::int64_t i = 0; i < tensor.shape.front(); ++i) put(2 * importance_value(tensor.name, i));
  }
  std::copy_n(reinterpret_cast<const char*>(&count), sizeof(count), bytes.begin());
  return bytes;
}

class LlamaQuantize : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, LlamaQuantize, testing::Values("harder-llada-f16", "tiny-llada-f32"),
                         [](const auto& each) { return std::string(each.param).substr(0, 4); });

TEST_P(LlamaQuantize, TensorsAreTheSame) {
  const json hashes = recorded()[GetParam()];
  ASSERT_EQ(hashes.size(), 16u);
  const auto source = open_source(fmt::format("{}/models/{}.gguf", kRoot, GetParam()));
  ASSERT_TRUE(source) << source.error().message();
  const test::TempDirectory directory;
  test::write_text(directory.file("imatrix.dat"), importance_file(*source));
  auto importance = Importance::open(directory.file("imatrix.dat"));
  ASSERT_TRUE(importance) << importance.error().message();
  const auto shared = std::make_shared<const Importance>(*std::move(importance));
  for (const auto& [type, hash] : hashes.items())
    for (const bool weighted : {false, true}) {
      WriteOptions options{.type = type};
      if (weighted) options.importance = shared, options.recipe.importance = true;
      const auto report = write_model(*source, options, directory.file("out.gguf"));
      ASSERT_TRUE(report) << report.error().message();
      const auto recorded = hash.at(weighted ? "importance" : "plain").get<std::string>();
      EXPECT_EQ(hash_of(directory.file("out.gguf")), recorded) << type << weighted;
    }
}

}  // namespace
}  // namespace dllm
