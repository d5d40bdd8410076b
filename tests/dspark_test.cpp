// DSpark's drafters as their programs write them: a folder whose values of the layers are in an object of their own,
// and llama.cpp's file; both with a head, a map of tokens in whole numbers, a Markov head and a confidence head.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "dllm/model.h"
#include "format/gguf.h"
#include "golden_model.h"
#include "model/drafter_source.h"
#include "model/model.h"

namespace dllm {
namespace {

using nlohmann::json;
using test::HfCheckpoint;
using test::HfTensor;

constexpr std::int64_t kDrafts = 40, kRank = 8, kWidth = 64, kTokens = 272;

/// Row i of the drafter's head is this token of the target.
std::int64_t token_of(std::int64_t row) { return row < 20 ? 97 + row : 12 + 2 * row; }

HfTensor floats(const std::string& name, std::vector<std::int64_t> dims) {
  json entry = {{"name", name}, {"shape", dims}, {"offset", 0}, {"scale", 0.125}};
  return {name, "F32", dims, test::tensor_bytes_of(entry)};
}

HfTensor distances(const std::string& type) {
  std::string bytes;
  for (std::int64_t row = 0; row < kDrafts; ++row) {
    const std::int64_t wide = token_of(row) - row;
    const auto narrow = static_cast<std::int32_t>(wide);
    bytes.append(type == "I64" ? reinterpret_cast<const char*>(&wide) : reinterpret_cast<const char*>(&narrow),
                 type == "I64" ? 8 : 4);
  }
  return {"d2t", type, {kDrafts}, bytes};
}

class DSparkFiles : public testing::Test {
 protected:
  DSparkFiles() {
    const json golden = json::parse(test::read_file(std::string(test::kGoldenModels) + "drafter-plain.json"));
    write(checkpoint_of(golden["target"]), true, target_.path());
    drafter_ = checkpoint_of(golden);
    json layers = golden["config"];
    for (const char* own : {"architectures", "dflash_config", "block_size", "num_target_layers"}) layers.erase(own);
    drafter_.config = {{"architectures", {"DSparkSpeculator"}},
                       {"transformer_layer_config", layers},
                       {"aux_hidden_state_layer_ids", {2, 4, 5}},
                       {"mask_token_id", 260},
                       {"block_size", 6},
                       {"draft_vocab_size", kDrafts}};
    for (HfTensor one :
         {floats("lm_head.weight", {kDrafts, kWidth}), floats("markov_head.markov_w1.weight", {kTokens, kRank}),
          floats("markov_head.markov_w2.weight", {kDrafts, kRank}),
          floats("confidence_head.proj.weight", {1, kWidth + kRank}), floats("confidence_head.proj.bias", {1}),
          distances("I64"), HfTensor{"t2d", "BOOL", {kTokens}, std::string(kTokens, '\0')}})
      drafter_.tensors.push_back(std::move(one));
  }

  static HfCheckpoint checkpoint_of(const json& description) {
    HfCheckpoint checkpoint = test::make_checkpoint({});
    checkpoint.config = description["config"];
    checkpoint.tensors.clear();
    for (const json& entry : description["tensors"])
      checkpoint.tensors.push_back({entry["name"].get<std::string>(), "F32",
                                    entry["shape"].get<std::vector<std::int64_t>>(), test::tensor_bytes_of(entry)});
    return checkpoint;
  }

  static void write(HfCheckpoint checkpoint, bool with_text, const std::string& directory) {
    if (!with_text) checkpoint.tokenizer = checkpoint.tokenizer_config = nullptr;
    checkpoint.write(directory);
  }

  std::string folder(const std::string& name) const {
    const std::string path = work_.file(name);
    std::filesystem::create_directory(path);
    write(drafter_, false, path);
    return path;
  }

  Expected<Generation> answer(const std::string& drafter) const {
    LoadOptions options;
    options.threads = 2;
    options.draft_model = drafter;
    const auto model = LanguageModel::load(target_.path(), options);
    if (!model) return model.error();
    GenerateOptions given;
    given.length = 32;
    return model->generate_ids({104, 101, 108, 108, 111}, given);
  }

  ModelDesc desc_of(const std::string& path) const {
    const auto target = *Model::load(target_.path());
    auto source = open_source(path);
    EXPECT_TRUE(source) << source.error().message();
    EXPECT_TRUE(complete_drafter(*target, *source));
    const auto model = Model::load(*std::move(source), Log());
    EXPECT_TRUE(model) << model.error().message();
    EXPECT_TRUE(check_drafter(*target, **model));
    EXPECT_EQ(drafter_values(**model, "d2t")[0], 97);
    EXPECT_EQ(drafter_values(**model, "d2t")[39], 90);
    return (*model)->desc();
  }

  HfCheckpoint drafter_;
  test::TempDirectory target_, work_;
};

/// A file with the numbers of its last tensor, F32, as whole ones: what llama.cpp writes.
std::string with_integers(std::string bytes, std::size_t size) {
  const std::string name = std::string("\x03\0\0\0\0\0\0\0", 8) + "d2t";
  const std::size_t type = bytes.find(name) + name.size() + 4 + 8;
  bytes[type] = static_cast<char>(size == 8 ? 27 : 26);
  bytes.resize(bytes.size() - 4 * kDrafts);
  for (std::int64_t row = 0; row < kDrafts; ++row) {
    const std::int64_t token = token_of(row);
    bytes.append(reinterpret_cast<const char*>(&token), size);
  }
  return bytes;
}

TEST_F(DSparkFiles, FolderAndFileDraftAlike) {
  const std::string path = folder("spark");
  const ModelDesc desc = desc_of(path);
  EXPECT_EQ(desc.drafter.vocab, kDrafts);
  EXPECT_EQ(desc.drafter.markov_rank, kRank);
  EXPECT_TRUE(desc.drafter.confidence_head);
  EXPECT_FALSE(desc.drafter.from_anchor);
  EXPECT_EQ(desc.drafter.target_layers, (std::vector<std::int32_t>{1, 3, 4}));
  const auto plain = answer(""), drafted = answer(path);
  ASSERT_TRUE(plain && drafted) << drafted.error().message();
  EXPECT_EQ(drafted->ids, plain->ids);
  EXPECT_GT(drafted->stats.rounds, 0);

  const std::string file = work_.file("spark.gguf");
  WriteOptions options;
  options.type = "F32";
  ASSERT_TRUE(write_model(*open_source(path), options, file));
  const std::string floats = test::read_file(file);
  for (const std::size_t size : {std::size_t{4}, std::size_t{8}}) {
    test::write_text(file, with_integers(floats, size));
    EXPECT_EQ(desc_of(file).drafter.vocab, kDrafts);
    const auto again = answer(file);
    ASSERT_TRUE(again) << again.error().message();
    EXPECT_EQ(again->ids, plain->ids);
    EXPECT_EQ(again->commit_step, drafted->commit_step);
    EXPECT_EQ(again->stats.round_tokens, drafted->stats.round_tokens);
  }
}

TEST_F(DSparkFiles, OtherExportsAndDamage) {
  // Values in the configuration itself: rows predict the token behind them.
  json& config = drafter_.config;
  const json layers = config["transformer_layer_config"];
  for (const auto& [key, value] : layers.items()) config[key] = value;
  config.erase("transformer_layer_config");
  config.erase("aux_hidden_state_layer_ids");
  config["architectures"] = {"Qwen3DSparkModel"};
  config["target_layer_ids"] = {1, 3, 4};
  for (HfTensor& tensor : drafter_.tensors) tensor.name = "model." + tensor.name;
  *drafter_.find("model.d2t") = distances("I32");
  drafter_.find("d2t")->name = "model.d2t";
  EXPECT_TRUE(desc_of(folder("other")).drafter.from_anchor);
  config["sample_from_anchor"] = false;
  EXPECT_FALSE(desc_of(folder("placed")).drafter.from_anchor);

  const auto error = [&](const std::string& name) {
    const auto model = answer(folder(name));
    return model ? std::string() : model.error().message();
  };
  config["sample_from_anchor"] = "yes";
  EXPECT_NE(error("worded").find("sample_from_anchor"), std::string::npos);
  config["sample_from_anchor"] = false;
  config["markov_head_type"] = "gated";
  EXPECT_NE(error("gated").find("markov_head_type"), std::string::npos);
  config.erase("markov_head_type");
  HfTensor& map = *drafter_.find("model.d2t");
  map.bytes[3] = 1;
  EXPECT_NE(error("far").find("token"), std::string::npos);
  map = {"model.d2t", "I64", {kDrafts / 2, 2}, std::string(8 * kDrafts, '\0')};
  EXPECT_NE(error("square").find("d2t"), std::string::npos);
  map = {"model.d2t", "U8", {kDrafts}, std::string(kDrafts, '\0')};
  EXPECT_NE(error("bytes").find("d2t"), std::string::npos);
  map = floats("model.d2t", {kDrafts});
  const std::string fractions = error("fractions");
  EXPECT_NE(fractions.find("d2t"), std::string::npos) << fractions;
  EXPECT_NE(fractions.find("F32"), std::string::npos) << fractions;
}

/// Only a drafter's map of tokens may be whole numbers.
TEST(Integers, OtherTensorsAreRefused) {
  const auto parsed = [](const std::string& name, std::uint32_t type, std::uint64_t count) {
    const auto raw = [](auto value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
    std::string bytes = "GGUF" + raw(std::uint32_t{3}) + raw(std::uint64_t{1}) + raw(std::uint64_t{0}) +
                        raw(std::uint64_t{name.size()}) + name + raw(std::uint32_t{1}) + raw(count) + raw(type) +
                        raw(std::uint64_t{0});
    bytes.resize((bytes.size() + 31) / 32 * 32);
    for (std::int64_t value : {5, -3, 7}) bytes += raw(value);
    const auto owner = std::make_shared<std::string>(bytes);
    return GgufFile::parse(MappedFile::wrap(std::as_bytes(std::span(*owner)), "x"));
  };
  const auto map = parsed("d2t", 27, 3);
  ASSERT_TRUE(map) << map.error().message();
  ASSERT_EQ(map->integers().size(), 1U);
  EXPECT_EQ(map->integers()[0].values, (std::vector<std::int64_t>{5, -3, 7}));
  EXPECT_TRUE(map->tensors().empty());
  EXPECT_EQ(parsed("d2t", 26, 6)->integers()[0].values, (std::vector<std::int64_t>{5, 0, -3, -1, 7, 0}));
  EXPECT_NE(parsed("t2d", 27, 3).error().message().find("I64"), std::string::npos);
  EXPECT_FALSE(parsed("d2t", 25, 3)) << "of two bytes";
  EXPECT_FALSE(parsed("d2t", 27, 4)) << "behind the end";
  EXPECT_FALSE(parsed("d2t", 27, std::uint64_t{1} << 61)) << "eight times as many bytes are none";
}

}  // namespace
}  // namespace dllm
