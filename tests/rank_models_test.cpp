// What runs beside a model on several ranks: adapters, copies that draft, drafters, the second path.
#include "engine/backend/rank_models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "drafter_pair.h"
#include "engine/backend/rank_adapters.h"
#include "engine/backend/rank_flags.h"
#include "engine/joined_passes.h"
#include "format/gguf.h"
#include "ranks/ranked_backend.h"
#include "ranks/wire.h"
#include "ranks_on_threads.h"
#include "starved_backend.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;
using test::RandomModel;
using test::Trace;

constexpr SplitKind kAllSplits[] = {SplitKind::kOutputs, SplitKind::kRows, SplitKind::kLayers};
const std::string kModels = DLLM_SOURCE_DIR "/models/";

CpuOptions one_thread() {
  CpuOptions options;
  options.threads = 1;
  return options;
}

/// The script's trace with rank 0's models on a group, whose other ranks have `others` and follow.
Trace run_group(const RankModels& first, const RankModels& others, int ranks, SplitKind split, const PartFolder& folder,
                const test::Script& script) {
  auto group = test::local_group(ranks);
  std::vector<std::thread> followers;
  for (int rank = 1; rank < ranks; ++rank)
    followers.emplace_back([&, rank] {
      Communicator& own = *group[static_cast<std::size_t>(rank)];
      const auto models = share_models(others, own, split, folder);
      ASSERT_TRUE(models) << models.error().message();
      const auto running = make_parts(*models, one_thread(), own, split);
      ASSERT_TRUE(running) << running.error().message();
      const auto followed = follow_ranks(*running->backend, own);
      EXPECT_TRUE(followed) << followed.error().message();
    });
  Trace trace;
  {
    const std::shared_ptr<Communicator> own(std::move(group[0]));
    const auto models = share_models(first, *own, split, folder);
    EXPECT_TRUE(models) << models.error().message();
    auto running = make_parts(*models, one_thread(), *own, split);
    EXPECT_TRUE(running) << running.error().message();
    RankedBackend backend(std::move(running->backend), own);
    trace = script(backend);
  }
  for (std::thread& follower : followers) follower.join();
  return trace;
}

/// A prompt, then a block of masks and the same block decided, twice.
Trace rounds(Backend& backend, Region drafts, TokenId mask) {
  const auto cache = *backend.make_cache(64);
  const auto vocab = static_cast<TokenId>(backend.desc().vocab);
  const auto token = [&](Position p) { return (p * 7 + 3) % vocab; };
  Trace trace;
  const auto pass = [&](PositionRange rows, bool draft) {
    SequenceStep step{cache.get(), {}, {}, std::nullopt};
    step.request.hidden = drafts == Region::kDraft && !draft;
    step.plan.region = draft ? drafts : Region::kContext;
    step.plan.causal_block = draft ? 0 : 1;
    step.plan.visible = {{0, rows.end}};
    for (Position p = rows.begin; p < rows.end; ++p) {
      step.plan.rows.push_back({p, draft && p > rows.begin ? mask : token(p)});
      if (!draft || p > rows.begin) step.plan.scored.push_back(p - rows.begin);
    }
    auto scores = backend.forward({&step, 1});
    ASSERT_TRUE(scores) << scores.error().message();
    trace.push_back(std::move((*scores)[0]));
  };
  pass({0, 17}, false);
  for (const Position at : {16, 19}) {
    pass({at, at + 5}, true);
    pass({at, at + 5}, false);
  }
  return trace;
}

RankModels opened(const LoadOptions& options) {
  std::vector<AdapterRequest> adapters;
  for (const std::string& path : options.lora) adapters.push_back(*parse_adapter_request(path, false));
  for (const std::string& path : options.lora_draft) adapters.push_back(*parse_adapter_request(path, true));
  RankModels models{*Model::load(*open_source(kModels + "tri-f16.gguf"), Log(), adapters), nullptr, true};
  models.drafts = *open_drafts(*models.model, options, Log());
  return models;
}

class RankBeside : public testing::Test {
 protected:
  RankBeside()
      : folder_(fs::path(testing::TempDir()) /
                ("beside-" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~RankBeside() override { fs::remove_all(folder_); }

  /// A model as a file of the folder.
  std::string written(const test::RandomModel& spec) const {
    const ModelSource source = test::random_source(spec);
    GgufWriter writer(source.metadata);
    for (const SourceTensor& tensor : source.tensors) {
      const auto added = writer.add(tensor.name, tensor.type, tensor.shape, [&tensor] { return tensor.data; });
      EXPECT_TRUE(added) << added.error().message();
    }
    std::string path = (folder_ / (spec.architecture + ".gguf")).string();
    const auto wrote = writer.write(path);
    EXPECT_TRUE(wrote) << wrote.error().message();
    return path;
  }

  /// Workers with the model's file, and workers with nothing, in every split.
  void expect_same(const RankModels& models, const test::Script& script, const std::string& what,
                   const std::string& path = kModels + "tri-f16.gguf") {
    const auto group = test::local_group(1);
    auto alone = make_parts(models, one_thread(), *group[0], SplitKind::kOutputs);
    ASSERT_TRUE(alone) << alone.error().message();
    const Trace expected = script(*alone->backend);
    ASSERT_FALSE(expected.empty());
    const RankModels with_file{*Model::load(path), nullptr, false, path};
    const PartFolder folder(folder_.string(), std::uint64_t{1} << 30);
    for (const SplitKind split : kAllSplits)
      for (const RankModels& others : {with_file, RankModels{}, models})
        EXPECT_EQ(test::difference(expected, run_group(models, others, 3, split, folder, script)), "")
            << what << ", split " << static_cast<int>(split) << (others.model ? "" : ", workers without a file");
  }

  fs::path folder_;
};

TEST_F(RankBeside, AdaptersComeFromTheFirstRank) {
  LoadOptions options;
  options.lora = {kModels + "tri-draft-lora.gguf:0.5"};
  options.lora_draft = {kModels + "tri-draft-lora.gguf"};
  const RankModels models = opened(options);
  const TokenId mask = *models.model->desc().mask;
  expect_same(models, [mask](Backend& backend) { return rounds(backend, Region::kCanvas, mask); }, "adapters");
}

TEST_F(RankBeside, ACopyDraftsOnAllRanks) {
  LoadOptions options;
  options.draft_model = kModels + "tri-f16.gguf";
  options.lora_draft = {kModels + "tri-draft-lora.gguf"};
  const RankModels models = opened(options);
  ASSERT_FALSE(models.drafts->is_drafter());
  const TokenId mask = *models.model->desc().mask;
  expect_same(models, [mask](Backend& backend) { return rounds(backend, Region::kCanvas, mask); }, "a copy");
}

TEST_F(RankBeside, AFileThatWasReplacedIsNotTaken) {
  LoadOptions options;
  options.lora = {kModels + "tri-draft-lora.gguf"};
  const RankModels first = opened(options);
  const RankModels other{*Model::load(test::random_source({})), nullptr, false, kModels + "tri-f16.gguf"};
  const auto group = test::local_group(2);
  const auto expect_mismatch = [&](const RankModels& own, std::size_t rank) {
    const auto shared = share_models(own, *group[rank], SplitKind::kRows, PartFolder("", 0));
    ASSERT_FALSE(shared) << rank;
    EXPECT_EQ(shared.error().code, ErrorCode::kMismatch) << shared.error().message();
  };
  std::thread worker([&] { expect_mismatch(other, 1); });
  expect_mismatch(first, 0);
  worker.join();
}

/// Both models are in memory, as every rank has them with MPI.
TEST_F(RankBeside, ADrafterRunsOnAllRanks) {
  for (const std::int64_t kv_heads : {2, 4}) {
    const test::Pair pair = test::paired({.architecture = "qwen3", .layers = 4, .kv_heads = kv_heads},
                                         {.architecture = "dflash", .layers = 2, .kv_heads = 2});
    const RankModels models{pair.target, pair.drafter, true};
    const auto script = [](Backend& backend) { return rounds(backend, Region::kDraft, -1); };
    const auto group = test::local_group(1);
    auto alone = make_parts(models, one_thread(), *group[0], SplitKind::kOutputs);
    ASSERT_TRUE(alone) << alone.error().message();
    const Trace expected = script(*alone->backend);
    for (const SplitKind split : kAllSplits)
      for (const int ranks : {2, 3})
        EXPECT_EQ(test::difference(expected, run_group(models, models, ranks, split, PartFolder("", 0), script)), "")
            << static_cast<int>(split) << ' ' << ranks;
  }
}

/// Workers get the drafter's file, and what it leaves to the target from the target's: their own, or the part that they
/// got of it.
TEST_F(RankBeside, ADraftersFileIsSentToWorkers) {
  const test::RandomModel target{.architecture = "qwen3", .layers = 4, .kv_heads = 2, .type = TensorType::kQ8_0};
  const std::string path = written(target);
  for (const std::int64_t own_head : {0, 24}) {
    LoadOptions options;
    options.draft_model = written({.architecture = "dflash",
                                   .layers = 2,
                                   .kv_heads = 2,
                                   .seed = 2,
                                   .drafter = {.target_layers = {0, 2}, .block = 6, .vocab = own_head}});
    RankModels models{*Model::load(path), nullptr, true};
    const auto drafter = open_drafts(*models.model, options, Log());
    ASSERT_TRUE(drafter) << drafter.error().message();
    models.drafts = *drafter;
    ASSERT_TRUE(models.drafts->is_drafter());
    const auto script = [](Backend& backend) { return rounds(backend, Region::kDraft, -1); };
    expect_same(models, script, "a drafter with a head of " + std::to_string(own_head), path);
    const auto sent = *whole_file(*models.drafts);
    EXPECT_EQ(sent.bytes(), fs::file_size(options.draft_model));
    EXPECT_NE(PartFolder(folder_.string(), std::uint64_t{1} << 30).find(sent), "") << "a worker keeps it";
  }
}

TEST(RankAdapters, DamagedBytesAreNoAdapters) {
  LoadOptions options;
  options.lora = {kModels + "tri-draft-lora.gguf"};
  const RankModels models = opened(options);
  const std::vector<std::byte> sent = encode_adapters(*models.model);
  const auto got = decode_adapters(sent);
  ASSERT_TRUE(got);
  ASSERT_EQ(got->size(), 1U);
  EXPECT_EQ((*got)[0].parts.size(), models.model->adapters().back().parts.size());
  EXPECT_TRUE(std::ranges::equal((*got)[0].parts[0].b.data, models.model->adapters().back().parts[0].b.data));
  for (const std::size_t count : {std::size_t{0}, std::size_t{3}, sent.size() / 2, sent.size() - 1})
    EXPECT_FALSE(decode_adapters(std::span(sent).first(count))) << count;
  std::vector<std::byte> longer = sent;
  longer.push_back({});
  EXPECT_FALSE(decode_adapters(longer));
}

TEST(RankAdapters, ASizeThatCannotBeTakesNoMemory) {
  const auto group = test::local_group(2);
  std::thread worker([&] {
    const auto got = share_adapters(nullptr, true, *group[1]);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, ErrorCode::kIo);
  });
  EXPECT_TRUE(gather_flags(*group[0], false));
  EXPECT_TRUE(group[0]->broadcast(WireWriter().put(std::uint64_t{1} << 60).take()));
  worker.join();
}

TEST(JoinedPassesTest, WhoWaitsLearnsOfALackOfMemory) {
  const auto model = *Model::load(test::random_source({.kv_heads = 2}));
  JoinedPasses joined(std::make_unique<test::StarvedBackend>(*CpuBackend::create(
      model->desc(), [&](StepShape shape) { return model->build(shape); }, model->weights(), one_thread())));
  const auto runner = joined.second_path();
  const auto cache = *joined.make_cache(16);
  SequenceStep step{cache.get(), {}, {}, std::nullopt};
  step.plan.rows = {{0, 1}};
  step.plan.visible = {{0, 1}};
  auto running = runner->start(step);
  EXPECT_THROW(runner->wait_for(*cache), std::bad_alloc);
  const auto got = running.get();
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::kResource);
}

/// A pass of the second path has the bits of a pass by itself, whether another one follows or nobody waits so long.
TEST(JoinedPassesTest, APassThatWaitsRunsWithTheNext) {
  const auto model = *Model::load(test::random_source({.kv_heads = 2}));
  const auto made = [&] {
    return *CpuBackend::create(
        model->desc(), [&](StepShape shape) { return model->build(shape); }, model->weights(), one_thread());
  };
  const auto step_of = [](KvCache& cache, PositionRange rows, Position seen) {
    SequenceStep step{&cache, {}, {}, std::nullopt};
    for (Position p = rows.begin; p < rows.end; ++p) {
      step.plan.rows.push_back({p, p % 7 + 1});
      step.plan.scored.push_back(p - rows.begin);
    }
    step.plan.visible = {{0, seen}};
    step.request.logits = true;
    return step;
  };
  const auto alone = made();
  Trace expected;
  const auto one = *alone->make_cache(64), two = *alone->make_cache(64);
  expected.push_back((*alone->forward(std::vector{step_of(*one, {0, 20}, 20)}))[0]);
  CpuBackend::copy_rows(*one, *two, std::vector<Position>{0, 1, 2, 3, 4, 9, 10});
  const std::uint32_t epoch = two->epoch();
  SequenceStep side = step_of(*two, {5, 9}, 11);
  expected.push_back((*alone->forward({&side, 1}))[0]);
  expected.push_back((*alone->forward(std::vector{step_of(*one, {12, 20}, 20)}))[0]);

  for (const bool waits : {false, true}) {
    JoinedPasses joined(made());
    EXPECT_TRUE(joined.runs_lead());
    const auto runner = joined.second_path();
    const auto main = *joined.make_cache(64), buffer = *joined.make_cache(64);
    Trace trace;
    trace.push_back((*joined.forward(std::vector{step_of(*main, {0, 20}, 20)}))[0]);
    runner->copy_rows(*main, *buffer, std::vector<Position>{0, 1, 2, 3, 4, 9, 10});
    EXPECT_EQ(buffer->epoch(), epoch) << "one pass";
    side.cache = buffer.get();
    auto dropped = runner->start(side);
    runner->drop(*buffer);
    dropped.wait();
    auto running = runner->start(side);
    EXPECT_NE(running.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    if (waits) runner->wait_for(*buffer);
    Scores last = (*joined.forward(std::vector{step_of(*main, {12, 20}, 20)}))[0];
    runner->wait_for(*buffer);
    trace.push_back((*running.get())[0]);
    trace.push_back(std::move(last));
    EXPECT_EQ(test::difference(expected, trace), "") << waits;
  }
}

}  // namespace
}  // namespace dllm
