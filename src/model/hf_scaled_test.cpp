// Checkpoints in FP8, NVFP4 and MXFP4 against the values of ml_dtypes (testdata/make_scaled.py), and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "model/model.h"
#include "model/source.h"
#include "model/testing/hf_directory.h"
#include "numerics/half.h"

namespace dllm {
namespace {

using Json = nlohmann::json;
using test::HfCheckpoint;
using test::TempDirectory;

constexpr const char* kMatrix = "model.layers.0.mlp.gate_proj.weight";

std::string bytes_of(const Json& entry) {
  const auto hex = entry["bytes"].get<std::string>();
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

const std::vector<Json>& all_cases() {
  static const std::vector<Json> all =
      Json::parse(test::read_text(DLLM_SOURCE_DIR "/src/model/testdata/scaled.json")).get<std::vector<Json>>();
  return all;
}

const Json& case_of(const std::string& name) {
  return *std::ranges::find_if(all_cases(), [&](const Json& one) { return one["name"] == name; });
}

/// A Llama whose first gate is stored as the case has it.
HfCheckpoint checkpoint_of(const Json& one) {
  HfCheckpoint checkpoint = test::make_checkpoint({.family = "llama", .dtype = "BF16", .ffn_width = 20});
  checkpoint.config["quantization_config"] = one["config"];
  checkpoint.erase(kMatrix);
  const std::string stem = std::string(kMatrix).substr(0, std::string(kMatrix).size() - std::string("weight").size());
  for (const auto& [key, part] : one["parts"].items())
    checkpoint.tensors.push_back(
        {stem + key, part["dtype"].get<std::string>(), part["shape"].get<std::vector<std::int64_t>>(), bytes_of(part)});
  return checkpoint;
}

std::string error_of(const std::string& name, const std::function<void(HfCheckpoint&)>& damage) {
  const TempDirectory directory;
  HfCheckpoint checkpoint = checkpoint_of(case_of(name));
  damage(checkpoint);
  checkpoint.write(directory.path());
  const auto source = source_from_hf(directory.path());
  return source ? "" : source.error().message();
}

TEST(ScaledWeights, AreTheValuesOfTheirFormats) {
  ASSERT_EQ(all_cases().size(), 7u);
  for (const Json& one : all_cases()) {
    const auto name = one["name"].get<std::string>();
    const TempDirectory directory;
    checkpoint_of(one).write(directory.path());
    const auto source = source_from_hf(directory.path());
    ASSERT_TRUE(source) << name << ": " << source.error().message();
    const SourceTensor* const gate = source->find("blk.0.ffn_gate.weight");
    ASSERT_NE(gate, nullptr) << name;
    EXPECT_EQ(gate->type, name == "mxfp4" ? TensorType::kMXFP4 : TensorType::kBF16) << name;
    EXPECT_EQ(gate->shape, (Shape{64, 20})) << name;
    EXPECT_FALSE(gate->mapped) << name << ": its pages are not a file's";
    EXPECT_EQ(source->find("blk.0.ffn_gate.weight_scale"), nullptr) << name;
    std::vector<float> values(64 * 20);
    codec(gate->type).dequantize(gate->data.data(), values.data(), 64 * 20);
    const std::string expected = bytes_of(one["values"]);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, expected.data() + 2 * i, 2);
      ASSERT_EQ(values[i], bf16_to_f32(bits)) << name << ", element " << i;
    }
    EXPECT_TRUE(Model::load(*source)) << name;
  }
}

TEST(ScaledWeights, ScalesThatDoNotFitAreErrors) {
  const auto replace = [](const char* end, std::vector<std::int64_t> dims, std::string bytes) {
    return [=](HfCheckpoint& c) {
      for (test::HfTensor& tensor : c.tensors)
        if (tensor.name.ends_with(end)) tensor.dims = dims, tensor.bytes = bytes;
    };
  };
  const std::string stem = "model.layers.0.mlp.gate_proj.";
  EXPECT_NE(error_of("fp8-blocks", [&](auto& c) { c.erase(stem + "weight_scale_inv"); }).find("FP8 without a scale"),
            std::string::npos);
  EXPECT_NE(error_of("fp8-blocks", [](auto& c) { c.config["quantization_config"].erase("weight_block_size"); })
                .find("do not fit a matrix of 20 x 64 in blocks of 128 x 128"),
            std::string::npos);
  EXPECT_NE(error_of("fp8-rows", replace("weight_scale", {1, 20}, std::string(40, '\0'))).find("do not fit"),
            std::string::npos)
      << "scales of columns";
  EXPECT_NE(error_of("fp8-whole", replace("weight_scale", {1}, std::string("\0\0\xc0\x7f", 4))).find("not a number"),
            std::string::npos);
  EXPECT_NE(error_of("fp8-whole", replace("0.mlp.gate_proj.weight", {20, 64}, std::string(20 * 64, '\x7f')))
                .find("a weight is not a number"),
            std::string::npos);
  EXPECT_NE(error_of("nvfp4-multiplied", [&](auto& c) { c.erase(stem + "weight_scale_2"); }).find("weight_scale_2"),
            std::string::npos);
  EXPECT_NE(error_of("nvfp4-divided", [&](auto& c) { c.erase(stem + "weight_scale"); }).find("without scales"),
            std::string::npos);
  EXPECT_NE(error_of("mxfp4", replace("weight_scale", {20, 2}, std::string(40, '\xff'))).find("not a number"),
            std::string::npos);
  EXPECT_NE(error_of("mxfp4", replace("weight_scale", {10, 4}, std::string(40, '\x7f'))).find("in groups of 32"),
            std::string::npos);
}

TEST(ScaledWeights, OtherMethodsAreRefusedByName) {
  const auto with = [](const char* key, const Json& value) {
    return error_of("fp8-rows", [&](HfCheckpoint& c) { c.config["quantization_config"][key] = value; });
  };
  EXPECT_EQ(with("ignore", {"lm_head"}), "");
  EXPECT_EQ(with("transform_config", Json::object()), "");
  for (const char* method : {"gptq", "awq", "bitsandbytes", "torchao", "auto-round"})
    EXPECT_NE(with("quant_method", method).find(std::string("quantized by '") + method + "'"), std::string::npos);
  for (const char* format : {"pack-quantized", "int-quantized", "marlin-24"})
    EXPECT_NE(with("format", format).find(std::string("stored as '") + format + "'"), std::string::npos);
  EXPECT_NE(with("transform_config", {{"config_groups", {{"u", 1}}}}).find("rotated"), std::string::npos);
}

}  // namespace
}  // namespace dllm
