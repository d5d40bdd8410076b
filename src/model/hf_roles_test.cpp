// Roles of tokens in a Hugging Face directory: which ids end answers, which names become tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/model.h"
#include "model/source.h"
#include "model/testing/hf_directory.h"

namespace dllm {
namespace {

using test::HfCheckpoint;
using test::make_checkpoint;
using test::TempDirectory;

ModelSource written(const HfCheckpoint& checkpoint, const TempDirectory& directory) {
  checkpoint.write(directory.path(), 1);
  auto source = source_from_hf(directory.path());
  if (source) return *std::move(source);
  ADD_FAILURE() << source.error().message();
  return {};
}

TEST(HfRoles, AnyNumberOfStopIds) {
  const TempDirectory directory;
  HfCheckpoint checkpoint = make_checkpoint({});
  checkpoint.generation_config = {{"eos_token_id", {1, 2, 3, 4, 5, 6}}};
  const ModelSource source = written(checkpoint, directory);
  const auto model = Model::load(source);
  ASSERT_TRUE(model.has_value()) << model.error().message();
  for (const TokenId id : {1, 2, 3, 4, 5, 6})
    EXPECT_NE(std::ranges::find((*model)->desc().stop_ids, id), (*model)->desc().stop_ids.end()) << id;
}

TEST(HfRoles, TokensThatChangeTheCanvasAreRefusedByName) {
  for (const char* family : {"dream", "llada"}) {
    const TempDirectory directory;
    HfCheckpoint checkpoint = make_checkpoint({.family = family});
    const auto plain = Model::load(written(checkpoint, directory));
    ASSERT_TRUE(plain) << plain.error().message();
    nlohmann::json token = checkpoint.tokenizer["added_tokens"].back();
    token["id"] = token["id"].get<int>() + 1;
    token["content"] = "<|expand|>";
    checkpoint.tokenizer["added_tokens"].push_back(token);
    const TempDirectory other;
    checkpoint.write(other.path(), 1);
    const auto refused = source_from_hf(other.path());
    EXPECT_EQ(refused.has_value(), std::string(family) == "llada") << family;
    if (refused) continue;
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(refused.error().what.find("<|expand|>"), std::string::npos) << refused.error().message();
  }
}

TEST(HfRoles, NamedTokensWithoutARowAreLeftOut) {
  const TempDirectory directory;
  HfCheckpoint checkpoint = make_checkpoint({});
  for (int i = 0; i < 20; ++i)
    checkpoint.tokenizer_config["additional_special_tokens"].push_back("<x" + std::to_string(i) + ">");
  const ModelSource source = written(checkpoint, directory);
  std::vector<std::string> lines;
  const auto model = Model::load(source, Log([&](LogLevel, const std::string& line) { lines.push_back(line); }));
  ASSERT_TRUE(model.has_value()) << model.error().message();
  EXPECT_EQ((*model)->tokenizer()->vocab_size(), (*model)->desc().vocab);
  EXPECT_TRUE((*model)->tokenizer()->find("<x0>").has_value());
  EXPECT_FALSE((*model)->tokenizer()->find("<x19>").has_value());
  EXPECT_TRUE(std::ranges::any_of(
      lines, [](const std::string& line) { return line.find("'<x19>' is left out") != line.npos; }));
}

}  // namespace
}  // namespace dllm
