// Low-rank adapters against the independent forward pass (golden/models/references.py): a PEFT folder, the same as a
// GGUF file, and the adapter for drafts that a checkpoint brings along.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "cpu/cpu_backend.h"
#include "dllm/model.h"
#include "format/gguf.h"
#include "format/testing/test_files.h"
#include "golden_model.h"
#include "model/model.h"
#include "quant/calibrated.h"
#include "vulkan/vulkan_backend.h"

namespace dllm {
namespace {

using nlohmann::json;
using test::deviation;
using test::GoldenModel;
using test::TempDirectory;

constexpr int kLayers = 2, kRank = 8, kInputs = 128, kOutputs = 64;

/// The matrices of make_models.py's `lora`.
std::vector<test::HfTensor> lora_tensors() {
  std::vector<test::HfTensor> tensors;
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = fmt::format("base_model.model.encoder.layers.{}.self_attn.o_proj.lora_", layer);
    const std::vector<std::int64_t> a = {kRank, kInputs}, b = {kOutputs, kRank};
    const auto bytes = [](const std::string& name, const std::vector<std::int64_t>& dims, double scale) {
      return test::tensor_bytes_of({{"name", name}, {"shape", dims}, {"offset", 0.0}, {"scale", scale}});
    };
    tensors.push_back({prefix + "A.weight", "F32", a, bytes(prefix + "A.weight", a, 0.0625)});
    tensors.push_back({prefix + "B.weight", "F32", b, bytes(prefix + "B.weight", b, 0.25)});
  }
  return tensors;
}

/// A PEFT folder; alpha / rank = 4. Null: no configuration.
void write_peft(const std::string& directory, const json& config = {{"peft_type", "LORA"}, {"lora_alpha", 32}},
                const std::vector<test::HfTensor>& tensors = lora_tensors()) {
  std::filesystem::create_directories(directory);
  test::HfCheckpoint files;
  files.tensors = tensors;
  files.write(directory);
  std::filesystem::rename(directory + "/model.safetensors", directory + "/adapter_model.safetensors");
  std::filesystem::remove(directory + "/config.json");
  if (!config.is_null()) test::write_text(directory + "/adapter_config.json", config.dump());
}

/// The same as llama.cpp's convert_lora_to_gguf writes it, byte by byte.
std::string gguf_adapter(const std::string& architecture, float alpha) {
  using test::text, test::u32, test::u64;
  const auto tensors = lora_tensors();
  std::string head = "GGUF" + u32(3) + u64(tensors.size()) + u64(4), infos, data;
  for (const auto& [key, value] : {std::pair<const char*, std::string>{"general.type", "adapter"},
                                   {"adapter.type", "lora"},
                                   {"general.architecture", architecture}})
    head += text(key) + u32(8) + text(value);
  head += text("adapter.lora.alpha") + u32(6) + test::raw(alpha);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool a = i % 2 == 0;
    infos += text(fmt::format("blk.{}.attn_output.weight.lora_{}", i / 2, a ? "a" : "b")) + u32(2) +
             u64(static_cast<std::uint64_t>(tensors[i].dims[1])) + u64(static_cast<std::uint64_t>(tensors[i].dims[0])) +
             u32(0) + u64(data.size());
    data += tensors[i].bytes;
    data.resize((data.size() + 31) / 32 * 32);
  }
  head += infos;
  head.resize((head.size() + 31) / 32 * 32);
  return head + data;
}

std::vector<double> golden_array(const std::string& name) {
  const auto array = parse_npy(test::read_file(std::string(test::kGoldenModels) + name + ".npy"), name);
  return {array->values.begin(), array->values.end()};
}

Expected<LanguageModel> load(const std::string& path, const std::vector<std::string>& lora,
                             const std::string& arithmetic = "") {
  LoadOptions options;
  options.threads = 2;
  options.lora = lora;
  options.arithmetic = arithmetic;
  return LanguageModel::load(path, options);
}

std::string load_error(const std::string& path, const LoadOptions& options) {
  const auto model = LanguageModel::load(path, options);
  return model ? "" : model.error().message();
}

TEST(Lora, PeftFoldersAndGgufFilesChangeEveryPass) {
  const GoldenModel golden("nemotron");
  const TempDirectory directory;
  write_peft(directory.file("peft"));
  test::write_file(directory.file("lora.gguf"), gguf_adapter("nemotron_labs_diffusion", 32));
  for (const std::string name : {"peft", "lora.gguf"})
    for (const bool causal : {false, true}) {
      const auto model = load(golden.path(), {directory.file(name)});
      ASSERT_TRUE(model) << model.error().message();
      const auto logits = model->logits(golden.ids(), causal);
      ASSERT_TRUE(logits);
      EXPECT_LT(deviation(*logits, golden_array(causal ? "nemotron-causal-lora" : "nemotron-lora")), 1e-4) << name;
    }
}

TEST(Lora, ScalesMultiplyAndAdaptersAddUp) {
  const GoldenModel golden("nemotron");
  const TempDirectory directory;
  write_peft(directory.file("peft"));
  const auto logits = [&](const std::vector<std::string>& lora) {
    const auto model = load(golden.path(), lora);
    EXPECT_TRUE(model) << model.error().message();
    return *model->logits(golden.ids(), false);
  };
  const std::string peft = directory.file("peft");
  EXPECT_EQ(logits({peft + ":0"}), logits({}));
  EXPECT_LT(deviation(logits({peft + ":0.25", peft + ":0.75"}), golden_array("nemotron-lora")), 1e-4);
  EXPECT_GT(deviation(logits({peft + ":0.5"}), golden_array("nemotron-lora")), 0.01);
}

// The first layer is here and the second on a device, each with its part of the adapter; and both are on the device.
TEST(Lora, ModelsOnADeviceHaveTheSameBits) {
  if (const auto devices = vulkan_devices(); !devices || devices->empty()) GTEST_SKIP() << "no Vulkan device";
  const GoldenModel golden("nemotron");
  const TempDirectory directory;
  write_peft(directory.file("peft"));
  LoadOptions split;
  split.lora = {directory.file("peft")};
  const auto whole = load(golden.path(), split.lora);
  ASSERT_TRUE(whole);
  GenerateOptions drafts;
  drafts.length = 16;
  drafts.mode.name = "self-speculation";
  const auto expected = whole->generate_ids(golden.ids(), drafts);
  for (const std::int64_t layers : {1, 2}) {
    split.backend_options["gpu_layers"] = layers;
    const auto other = LanguageModel::load(golden.path(), split);
    ASSERT_TRUE(other) << other.error().message();
    EXPECT_EQ(*other->logits(golden.ids(), false), *whole->logits(golden.ids(), false));
    const auto actual = other->generate_ids(golden.ids(), drafts);
    ASSERT_TRUE(expected && actual) << actual.error().message();
    EXPECT_EQ(actual->hash, expected->hash);
    EXPECT_EQ(actual->stats.nfe, expected->stats.nfe);
  }
}

// Quantized matrices stay packed as they are: the low-rank products are added to theirs.
TEST(Lora, QuantizedModelsStayPacked) {
  const GoldenModel golden("nemotron");
  const TempDirectory directory;
  write_peft(directory.file("peft"));
  const std::string path = golden.write_gguf("Q8_0");
  for (const char* arithmetic : {"exact", "super"}) {
    const auto with = load(path, {directory.file("peft")}, arithmetic), without = load(path, {}, arithmetic);
    ASSERT_TRUE(with && without);
    EXPECT_EQ(with->arithmetic().substr(0, 5), without->arithmetic().substr(0, 5));
    EXPECT_LT(deviation(*with->logits(golden.ids(), false), golden_array("nemotron-lora")), 0.05) << arithmetic;
  }
}

/// Logits of a pass over the whole text in one region.
std::vector<float> region_logits(const Model& model, const std::vector<std::int32_t>& ids, Region region) {
  const auto backend =
      *CpuBackend::create(model.desc(), [&](StepShape shape) { return model.build(shape); }, model.weights(), {});
  const auto count = static_cast<Position>(ids.size());
  const auto cache = *backend->make_cache(count);
  SequenceStep step{cache.get(), {}, {}, std::nullopt};
  for (Position p = 0; p < count; ++p) {
    step.plan.rows.push_back({p, ids[static_cast<std::size_t>(p)]});
    step.plan.scored.push_back(p);
  }
  step.plan.visible = {{0, count}};
  step.plan.region = region;
  step.request.logits = true;
  return (*backend->forward({&step, 1}))[0].logits;
}

TEST(Lora, TheDraftAdapterOfACheckpointIsForDrafts) {
  const GoldenModel golden("nemotron");
  write_peft(golden.path() + "/linear_spec_lora", nullptr);  // without a configuration the published scale, 4
  for (const std::string& path : {golden.path(), golden.write_gguf("F32")}) {
    const auto model = Model::load(path);
    ASSERT_TRUE(model) << model.error().message();
    EXPECT_LT(deviation(region_logits(**model, golden.ids(), Region::kCanvas), golden_array("nemotron-lora")), 1e-4);
    EXPECT_LT(deviation(region_logits(**model, golden.ids(), Region::kContext), golden.logits()), 1e-4);
  }
  const std::string quantized = golden.write_gguf("Q8_0");
  const auto converted = source_from_gguf(*GgufFile::open(quantized));
  ASSERT_TRUE(converted);
  for (const SourceTensor& tensor : converted->tensors) {
    if (tensor.name.starts_with("draft_adapter.")) {
      EXPECT_EQ(tensor.type, TensorType::kF32);
    }
  }
  // Drafts change, the answer does not.
  const GoldenModel bare("nemotron");
  GenerateOptions options;
  options.length = 24;
  options.exact_length = true;
  const auto with = load(quantized, {}), without = load(bare.write_gguf("Q8_0"), {});
  ASSERT_TRUE(with && without) << with.error().message();
  const std::vector<std::int32_t> prompt = {104, 101, 108};
  EXPECT_EQ(with->generate_ids(prompt, options)->ids, without->generate_ids(prompt, options)->ids);
}

// The cache is of the model: what the first adapter wrote serves the model alone, and another adapter.
TEST(Lora, OneWeightCacheServesEveryAdapter) {
  const GoldenModel golden("nemotron");
  const TempDirectory directory;
  write_peft(directory.file("peft"));
  const std::string path = golden.write_gguf("Q8_0"), peft = directory.file("peft");
  std::string cache;
  for (const std::vector<std::string>& lora : {std::vector{peft}, {}, {peft + ":0.5", peft}}) {
    LoadOptions options;
    options.threads = 2;
    options.lora = lora;
    const auto plain = LanguageModel::load(path, options);
    options.weight_cache = directory.file("cache");
    const auto with = LanguageModel::load(path, options);
    ASSERT_TRUE(plain && with) << with.error().message();
    EXPECT_EQ(*with->logits(golden.ids(), false), *plain->logits(golden.ids(), false));
    const std::string bytes = test::read_file(options.weight_cache);
    EXPECT_TRUE(cache.empty() || bytes == cache) << "it was written again";
    cache = bytes;
  }
}

TEST(Lora, RunsInANumericsProfile) {
  const GoldenModel golden("nemotron");
  const TempDirectory directory;
  write_peft(directory.file("peft"));
  LoadOptions options;
  options.threads = 2;
  const auto logits = [&](const char* numerics, const std::vector<std::string>& lora) {
    options.numerics = numerics;
    options.lora = lora;
    const auto model = LanguageModel::load(golden.path(), options);
    if (!model) return ADD_FAILURE() << model.error().message(), std::vector<float>{};
    return *model->logits(golden.ids(), false);
  };
  const std::string peft = directory.file("peft");
  EXPECT_LT(deviation(logits("f32", {peft}), golden_array("nemotron-lora")), 1e-4);
  EXPECT_LT(deviation(logits("bf16", {peft}), golden_array("nemotron-lora")), 0.05);
  EXPECT_EQ(logits("w8a8kv8", {peft + ":0"}), logits("w8a8kv8", {}));
  EXPECT_NE(logits("w8a8kv8", {peft}), logits("w8a8kv8", {}));
  options.lora = {};
  options.lora_draft = {peft};
  EXPECT_NE(load_error(golden.path(), options).find("drafts alone"), std::string::npos);
}

/// The error of loading an adapter whose configuration has one key more; empty: it loads.
std::string key_error(const char* key, const json& value) {
  const GoldenModel golden("nemotron");
  const TempDirectory directory;
  json config = {{"peft_type", "LORA"}, {"lora_alpha", 32}};
  config[key] = value;
  write_peft(directory.file("peft"), config);
  LoadOptions options;
  options.lora = {directory.file("peft")};
  return load_error(golden.path(), options);
}

TEST(Lora, KeysThatChangeWhatIsComputedAreRefusedByName) {
  for (const auto& [key, value] : {std::pair<const char*, json>{"init_lora_weights", "pissa"},
                                   {"init_lora_weights", "pissa_niter_16"},
                                   {"init_lora_weights", "olora"},
                                   {"init_lora_weights", "corda"},
                                   {"init_lora_weights", "loftq"},
                                   {"init_lora_weights", "lora_ga"},
                                   {"alora_invocation_tokens", json::array({5, 6})},
                                   {"layer_replication", json::array({json::array({0, 2})})},
                                   {"fan_in_fan_out", true},
                                   {"bias", "all"},
                                   {"lora_bias", true},
                                   {"modules_to_save", json::array({"lm_head"})},
                                   {"trainable_token_indices", json::array({3})},
                                   {"target_parameters", json::array({"experts"})},
                                   {"use_qalora", true},
                                   {"kasa_config", {{"beta", 1}}},
                                   {"rank_pattern", {{"^model.*o_proj", 8}}},
                                   {"rank_pattern", {{"o_proj", 4}}},
                                   {"alpha_pattern", {{"o_proj", 16}, {"self_attn.o_proj", 8}}},
                                   {"r", 4},
                                   {"peft_type", "LOHA"},
                                   {"a_later_switch", false},
                                   {"a_later_table", json::object()}}) {
    const std::string message = key_error(key, value);
    const bool rank =
        std::string_view(key) == "r" || (value.is_object() && value.contains("o_proj") && value["o_proj"] == 4);
    EXPECT_NE(message.find(rank ? "has rank 8" : key), std::string::npos) << key << ": " << message;
  }
}

TEST(Lora, KeysThatDoNotAreRead) {
  for (const auto& [key, value] : {std::pair<const char*, json>{"init_lora_weights", "eva"},
                                   {"init_lora_weights", true},
                                   {"init_lora_weights", "gaussian"},
                                   {"exclude_modules", "up_proj"},
                                   {"target_modules", json::array({"o_proj"})},
                                   {"lora_dropout", 0.1},
                                   {"layer_replication", nullptr},
                                   {"modules_to_save", json::array()},
                                   {"rank_pattern", {{"o_proj", 8}}},
                                   {"alpha_pattern", {{"o_proj", 32}}},
                                   {"a_later_switch", nullptr},
                                   {"r", 8}}) {
    EXPECT_EQ(key_error(key, value), "") << key;
  }
}

TEST(Lora, WhatDoesNotFitIsRefused) {
  const GoldenModel golden("nemotron");
  const TempDirectory directory;
  const auto error = [&](const std::string& lora) {
    LoadOptions options;
    options.lora = {directory.file(lora)};
    return load_error(golden.path(), options);
  };
  const auto peft_error = [&](const json& config, const std::function<void(std::vector<test::HfTensor>&)>& damage) {
    auto tensors = lora_tensors();
    damage(tensors);
    write_peft(directory.file("damaged"), config, tensors);
    const std::string message = error("damaged");
    std::filesystem::remove_all(directory.file("damaged"));
    return message;
  };
  const json config = {{"peft_type", "LORA"}, {"lora_alpha", 32}};
  const auto none = [](auto&) {};
  const auto says = [](const std::string& message, const char* text) {
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  EXPECT_EQ(peft_error(config, none), "");
  json dora = config;
  dora["use_dora"] = true;
  says(peft_error(dora, none), "use_dora");
  says(peft_error(nullptr, none), "adapter_config.json");
  says(peft_error(config, [](auto& t) { t.pop_back(); }), "B is missing");
  says(peft_error(config, [](auto& t) { t[0].name = "base_model.model.encoder.layers.0.mixer.lora_A.weight"; }),
       "no matrix that this belongs to");
  says(peft_error(config, [](auto& t) { t[0].dims = {kInputs, kRank}; }), "do not fit the matrix");
  says(error("nowhere.gguf"), "nowhere.gguf");
  test::write_file(directory.file("llama.gguf"), gguf_adapter("llama", 32));
  says(error("llama.gguf"), "general.architecture");
  LoadOptions drafts;
  write_peft(directory.file("peft"));
  drafts.lora_draft = {directory.file("peft")};
  says(load_error("", drafts), "makes no drafts");
}

TEST(Lora, RotatedModelsTakeNoAdapters) {
  const GoldenModel golden("nemotron");
  const TempDirectory directory;
  const auto source = open_source(golden.path());
  ASSERT_TRUE(source);
  WriteOptions rotated;
  rotated.type = "F32";
  rotated.rotation = Rotation::kHeads;
  ASSERT_TRUE(write_quantized(*source, rotated, {}, directory.file("rotated.gguf")));
  write_peft(directory.file("peft"));
  LoadOptions options;
  options.lora = {directory.file("peft")};
  const std::string message = load_error(directory.file("rotated.gguf"), options);
  EXPECT_NE(message.find("the weights of the model are rotated"), std::string::npos) << message;
}

}  // namespace
}  // namespace dllm
