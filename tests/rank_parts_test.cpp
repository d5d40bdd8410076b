// Weights that rank 0 sends: which bytes, where they are kept, and what a rank computes with them.
#include "engine/backend/rank_parts.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/backend/ranks_setup.h"
#include "random_model.h"
#include "ranks/local_group.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;

class RankParts : public testing::Test {
 protected:
  RankParts()
      : folder_(fs::path(testing::TempDir()) /
                ("parts-" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~RankParts() override { fs::remove_all(folder_); }

  std::shared_ptr<const Model> file_model(const std::string& name) const {
    return *Model::load(DLLM_SOURCE_DIR "/models/" + name);
  }
  std::string cache() const { return (folder_ / "cache").string(); }

  /// What each rank but the first gets from share_weights(), and the errors of all.
  std::vector<std::string> share(const Model& model, int ranks, SplitKind split, const PartFolder& folder,
                                 const std::function<bool()>& go_on = {}) {
    const auto group = local_group(ranks);
    std::vector<std::string> errors(static_cast<std::size_t>(ranks));
    models_.assign(static_cast<std::size_t>(ranks), nullptr);
    told_.clear();
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < errors.size(); ++r)
      threads.emplace_back([&, r] {
        const SendWatch watch{[&](const std::string& text) { told_.push_back(text); }, go_on};
        auto shared = share_weights(r == 0 ? &model : nullptr, *group[r], split, folder, r == 0 ? watch : SendWatch{});
        if (shared)
          models_[r] = *std::move(shared);
        else
          errors[r] = shared.error().message();
      });
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

  fs::path folder_;
  std::vector<std::shared_ptr<const Model>> models_;
  std::vector<std::string> told_;
};

std::uint64_t on_disk(const fs::path& path) {
  struct stat status{};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

TEST_F(RankParts, EachRankGetsItsPartAlone) {
  const auto model = file_model("tiny-llada-f32.gguf");
  const PartFolder folder(cache(), std::uint64_t{1} << 30);
  for (const SplitKind split : {SplitKind::kOutputs, SplitKind::kRows, SplitKind::kLayers}) {
    for (const std::string& error : share(*model, 3, split, folder)) EXPECT_EQ(error, "");
    for (int rank = 1; rank < 3; ++rank) {
      const auto part = *part_of_file(*model, {split, rank, 3});
      const fs::path path = folder.file_of(part);
      EXPECT_EQ(fs::file_size(path), part.file_bytes);
      if (split != SplitKind::kRows) {
        EXPECT_LT(part.bytes(), part.file_bytes * 7 / 10);
      }
      EXPECT_LT(on_disk(path), part.bytes() + part.bytes() / 4 + 65536) << "holes take no room";
      // What the rank reads is what rank 0 has.
      const Model& got = *models_[static_cast<std::size_t>(rank)];
      const RankGraph own = split_graph(got.build({1, 1}), {split, rank, 3});
      for (const WeightPart& needed : own.parts) {
        const WeightView &theirs = got.weights()[static_cast<std::size_t>(needed.source)],
                         &ours = model->weights()[static_cast<std::size_t>(needed.source)];
        if (needed.count == 0 || !ours.present() || theirs.shape.size() > 2) continue;
        const std::size_t row = ours.data.size() / static_cast<std::size_t>(ours.shape.back());
        const std::size_t first = row * static_cast<std::size_t>(needed.first),
                          count = row * static_cast<std::size_t>(needed.count);
        EXPECT_EQ(std::memcmp(theirs.data.data() + first, ours.data.data() + first, count), 0);
      }
    }
  }
}

TEST_F(RankParts, WhatWasSentIsKept) {
  const auto model = file_model("tiny-llada-f32.gguf");
  const PartFolder folder(cache(), std::uint64_t{1} << 30);
  for (const std::string& error : share(*model, 2, SplitKind::kOutputs, folder)) EXPECT_EQ(error, "");
  EXPECT_EQ(told_.size(), 1U);
  for (const std::string& error : share(*model, 2, SplitKind::kOutputs, folder)) EXPECT_EQ(error, "");
  EXPECT_EQ(told_.size(), 0U) << "it is there";
  // A damaged file is sent again.
  const auto part = *part_of_file(*model, {SplitKind::kOutputs, 1, 2});
  const FilePart::Range last = part.ranges.back();
  {
    std::fstream file(folder.file_of(part), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(last.first + last.count - 1));
    file.put('x');
  }
  EXPECT_EQ(folder.find(part), "");
  for (const std::string& error : share(*model, 2, SplitKind::kOutputs, folder)) EXPECT_EQ(error, "");
  EXPECT_EQ(told_.size(), 1U);
  EXPECT_EQ(folder.find(part), folder.file_of(part));
}

TEST_F(RankParts, APartIsReadOnceForItsChecksum) {
  const auto model = file_model("tiny-llada-f32.gguf");
  PartSums known;
  const RankSplit second{SplitKind::kOutputs, 1, 2};
  const FilePart part = *part_of_file(*model, second, &known);
  EXPECT_EQ(part.checksum, part_of_file(*model, second)->checksum);
  ASSERT_EQ(known.size(), 1U);
  known.begin()->second ^= 1;
  EXPECT_EQ(part_of_file(*model, second, &known)->checksum, part.checksum ^ 1);
  const RankSplit other{SplitKind::kOutputs, 1, 3};
  EXPECT_EQ(part_of_file(*model, other, &known)->checksum, part_of_file(*model, other)->checksum);
  EXPECT_EQ(known.size(), 2U);
}

TEST_F(RankParts, AFolderThatKeepsNothingFindsNothing) {
  const auto model = file_model("tiny-llada-f32.gguf");
  const auto part = *part_of_file(*model, {SplitKind::kOutputs, 1, 2});
  const PartFolder keeps(cache(), std::uint64_t{1} << 30), open(cache(), std::uint64_t{1} << 30, false);
  for (int i = 0; i < 2; ++i) {
    for (const std::string& error : share(*model, 2, SplitKind::kOutputs, open)) EXPECT_EQ(error, "");
    EXPECT_EQ(told_.size(), 1U) << "it is sent each time";
    ASSERT_TRUE(models_[1]);
    EXPECT_EQ(models_[1]->desc().layers, model->desc().layers);
    EXPECT_TRUE(fs::is_empty(cache()));
    EXPECT_EQ(keeps.find(part), "");
  }
  for (const std::string& error : share(*model, 2, SplitKind::kOutputs, keeps)) EXPECT_EQ(error, "");
  EXPECT_NE(keeps.find(part), "");
  EXPECT_EQ(open.find(part), "");
  for (const std::string& error : share(*model, 2, SplitKind::kOutputs, open)) EXPECT_EQ(error, "");
  EXPECT_EQ(told_.size(), 1U);
  EXPECT_NE(keeps.find(part), "") << "what others keep there stays";
}

TEST_F(RankParts, SendingEndsWhenItIsAskedTo) {
  const auto model = file_model("tiny-llada-f32.gguf");
  const PartFolder folder(cache(), std::uint64_t{1} << 30);
  for (const std::string& error : share(*model, 3, SplitKind::kOutputs, folder, [] { return false; }))
    EXPECT_NE(error.find("nobody waits"), std::string::npos) << error;
  EXPECT_TRUE(told_.empty());
  EXPECT_TRUE(fs::is_empty(cache()));
}

TEST_F(RankParts, TheFolderIsBounded) {
  const auto model = file_model("tiny-llada-f32.gguf");
  const auto outputs = *part_of_file(*model, {SplitKind::kOutputs, 1, 2});
  const auto rows = *part_of_file(*model, {SplitKind::kRows, 1, 2});
  const PartFolder small(cache(), rows.bytes() + outputs.bytes() / 2);
  for (const std::string& error : share(*model, 2, SplitKind::kOutputs, small)) EXPECT_EQ(error, "");
  EXPECT_NE(small.find(outputs), "");
  // Left by a writer that was killed.
  const fs::path left = fs::path(cache()) / "0123456789abcdef.gguf.1.part";
  std::ofstream(left) << "some bytes";
  for (const std::string& error : share(*model, 2, SplitKind::kRows, small)) EXPECT_EQ(error, "");
  EXPECT_NE(small.find(rows), "");
  EXPECT_EQ(small.find(outputs), "") << "it made room";
  EXPECT_FALSE(fs::exists(left));
  const PartFolder tiny(cache(), 1000);
  for (const std::string& error : share(*model, 2, SplitKind::kOutputs, tiny))
    EXPECT_NE(error.find("--cache-size"), std::string::npos) << error;
  for (const std::string& error : share(*model, 2, SplitKind::kOutputs, PartFolder("", 1000)))
    EXPECT_NE(error.find("--cache"), std::string::npos) << error;
}

TEST_F(RankParts, NothingButAFileCanBeSent) {
  const auto model = *Model::load(test::random_source({}));
  for (const std::string& error : share(*model, 2, SplitKind::kOutputs, PartFolder(cache(), 1 << 30)))
    EXPECT_NE(error.find("worker -m"), std::string::npos) << error;
}

TEST_F(RankParts, RanksWithAndWithoutAModelComputeTheSame) {
  const auto model = file_model("tri-f16.gguf");
  const PartFolder folder(cache(), std::uint64_t{1} << 30);
  for (const SplitKind split : {SplitKind::kOutputs, SplitKind::kLayers}) {
    const auto group = local_group(3);
    std::vector<std::string> errors(3);
    std::vector<std::vector<float>> logits(3);
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < 3; ++r)
      threads.emplace_back([&, r] {
        const auto work = [&]() -> Expected<void> {
          auto own = share_weights(r == 2 ? nullptr : model.get(), *group[r], split, folder);
          if (!own) return own.error();
          CpuOptions options;
          options.threads = 1;
          auto part = make_part(**own, options, *group[r], split);
          if (!part) return part.error();
          auto cache = *(*part)->make_cache(16);
          SequenceStep step;
          step.cache = cache.get();
          for (Position p = 0; p < 8; ++p) step.plan.rows.push_back({p, p + 3});
          step.plan.visible = {{0, 8}};
          step.plan.causal_block = model->desc().causal_block;
          step.plan.scored = {1, 6};
          step.request.logits = true;
          auto scores = (*part)->forward({&step, 1});
          if (!scores) return scores.error();
          logits[r] = scores->front().logits;
          return {};
        };
        if (const auto done = work(); !done) errors[r] = done.error().message();
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& error : errors) ASSERT_EQ(error, "");
    ASSERT_FALSE(logits[0].empty());
    for (std::size_t r = 1; r < 3; ++r)
      EXPECT_EQ(std::memcmp(logits[0].data(), logits[r].data(), logits[0].size() * sizeof(float)), 0) << r;
  }
}

TEST(FilePart, OnlySoundListsAreRead) {
  FilePart part{1000, {{0, 10}, {20, 30}, {990, 10}}, 7};
  ASSERT_TRUE(FilePart::decode(part.encoded()));
  EXPECT_EQ(FilePart::decode(part.encoded())->digest(), part.digest());
  const auto refused = [](FilePart changed) { return !FilePart::decode(changed.encoded()); };
  EXPECT_TRUE(refused({1000, {}, 7}));
  EXPECT_TRUE(refused({1000, {{0, 0}}, 7}));
  EXPECT_TRUE(refused({1000, {{20, 30}, {0, 10}}, 7}));
  EXPECT_TRUE(refused({1000, {{0, 21}, {20, 30}}, 7}));
  EXPECT_TRUE(refused({1000, {{990, 11}}, 7}));
  EXPECT_TRUE(refused({1000, {{~std::uint64_t{0}, 2}}, 7}));
  EXPECT_TRUE(refused({std::uint64_t{1} << 60, {{0, 1}}, 7}));
  std::vector<std::byte> longer = part.encoded();
  longer.push_back({});
  EXPECT_FALSE(FilePart::decode(longer));
}

}  // namespace
}  // namespace dllm
