// Checkpoints in FP8, NVFP4 and MXFP4 against the values of ml_dtypes (testdata/make_scaled.py), and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/testing/fuzz_replay.h"
#include "format/safetensors.h"
#include "model/hf_config.h"
#include "model/hf_scaled.h"
#include "model/model.h"
#include "model/source.h"
#include "model/testing/fuzz_entry.h"
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

/// What changes the first gate's parts: `end` of the name, and what is there instead.
std::function<void(HfCheckpoint&)> with_part(const std::string& end, const std::string& dtype,
                                             const std::vector<std::int64_t>& dims, const std::string& bytes) {
  return [=](HfCheckpoint& c) {
    test::HfTensor* const tensor = c.find("model.layers.0.mlp.gate_proj." + end);
    ASSERT_NE(tensor, nullptr) << end;
    tensor->dtype = dtype, tensor->dims = dims, tensor->bytes = bytes;
  };
}

/// Safetensors compares sizes only of shapes and types that it knows.
TEST(ScaledWeights, TensorsOfUncheckedSizeAreNotRead) {
  const auto error = [](const std::string& end, const std::string& dtype, const std::vector<std::int64_t>& dims) {
    return error_of("fp8-whole", with_part(end, dtype, dims, ""));
  };
  // 3 x 0x2AAAAAAAAAAAAAAB elements of two bytes are two bytes, modulo 2^64.
  EXPECT_NE(error("weight", "F8_E4M3", {3, 0x2AAAAAAAAAAAAAAB}).find("too large"), std::string::npos)
      << error("weight", "F8_E4M3", {3, 0x2AAAAAAAAAAAAAAB});
  EXPECT_NE(error("weight_scale", "F32", {1, 1, 1, 1, 1}).find("5 dimensions"), std::string::npos);
  EXPECT_NE(error("weight_scale", "F32", {0}).find("[0]"), std::string::npos);
  EXPECT_NE(error("weight_scale", "Q", {std::int64_t{1} << 40}).find("'Q'"), std::string::npos);
  EXPECT_NE(error_of("fp8-whole", with_part("weight_scale", "I64", {1}, std::string(8, '\0'))).find("of type I64"),
            std::string::npos);
  EXPECT_NE(error_of("nvfp4-multiplied", with_part("weight_scale_2", "Q", {1}, "")).find("'Q'"), std::string::npos);
  EXPECT_NE(error_of("mxfp4", with_part("weight_scale", "U8", {20, 1, 1, 1, 2}, "")).find("5 dimensions"),
            std::string::npos);
  const auto blocks = [](const Json& size) {
    return error_of("fp8-blocks", [&](auto& c) { c.config["quantization_config"]["weight_block_size"] = size; });
  };
  constexpr auto kLargest = std::numeric_limits<std::int64_t>::max();
  EXPECT_NE(blocks({kLargest, kLargest}).find("do not fit"), std::string::npos);
}

TEST(ScaledWeights, ProductsAreFinite) {
  const auto float_bytes = [](float value) {
    std::string bytes(4, '\0');
    std::memcpy(bytes.data(), &value, 4);
    return bytes;
  };
  const auto fp8 = [&](float scale, char code) {
    return error_of("fp8-whole", [&](HfCheckpoint& c) {
      with_part("weight_scale", "F32", {1}, float_bytes(scale))(c);
      with_part("weight", "F8_E4M3", {20, 64}, std::string(20 * 64 - 1, '\0') + code)(c);
    });
  };
  EXPECT_EQ(fp8(8e35f, 0x7d), "");                                       // 416 * 8e35
  EXPECT_NE(fp8(1e37f, 0x7e).find("is infinite"), std::string::npos);    // 448e37
  EXPECT_NE(fp8(3.4e38f, 0x38).find("is infinite"), std::string::npos);  // 1, but the scale is no BF16
  EXPECT_EQ(fp8(3.38e38f, 0x38), "");
  const auto nvfp4 = [&](const char* name, const char* whole, float scale) {
    return error_of(name, with_part(whole, "F32", {1}, float_bytes(scale)));
  };
  EXPECT_NE(nvfp4("nvfp4-multiplied", "weight_scale_2", 3e38f).find("is infinite"), std::string::npos);
  EXPECT_NE(nvfp4("nvfp4-divided", "weight_global_scale", 1e-40f).find("is infinite"), std::string::npos);
  const auto mxfp4 = [](char scale, char codes) {
    return error_of("mxfp4", [&](HfCheckpoint& c) {
      with_part("weight_scale", "U8", {20, 2}, std::string(40, scale))(c);
      with_part("weight_packed", "U8", {20, 32}, std::string(20 * 32, codes))(c);
    });
  };
  EXPECT_EQ(mxfp4('\xfd', 0x55), "") << "3 x 2^126";
  EXPECT_NE(mxfp4('\xfd', 0x65).find("is infinite"), std::string::npos) << "4 x 2^126";
  EXPECT_EQ(mxfp4('\xfe', 0x22), "") << "2^127";
}

TEST(ScaledWeights, WhatNobodyReadsIsNotDecoded) {
  const TempDirectory directory;
  HfCheckpoint checkpoint = checkpoint_of(case_of("fp8-rows"));
  checkpoint.erase("model.layers.0.mlp.gate_proj.weight_scale");
  checkpoint.write(directory.path());
  const auto files = Safetensors::open(directory.path());
  ASSERT_TRUE(files);
  const HfConfig config = HfConfig::of(checkpoint.config, "config.json");
  EXPECT_FALSE(decode_scaled(*files, config, [](std::string_view) { return false; }));
  const auto decoded = decode_scaled(*files, config, [](std::string_view name) { return name == kMatrix; });
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_TRUE(decoded->tensors.empty());
}

TEST(ScaledWeights, FuzzCorpus) {
  test::replay_corpus("scaled", 200, [](std::string_view text) { fuzz_scaled(test::bytes_of(text)); });
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
  EXPECT_EQ(with("quant_method", "mxfp4"), "");
  EXPECT_NE(with("quant_method", "awq").find("fp8, mxfp4,"), std::string::npos);
}

}  // namespace
}  // namespace dllm
