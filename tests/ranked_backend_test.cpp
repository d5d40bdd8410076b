// The first rank's backend: caches that end on other threads, children of fork(), failures of other ranks.
#include "ranks/ranked_backend.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "branch_properties.h"
#include "random_model.h"
#include "ranks/agree.h"
#include "ranks/command.h"
#include "ranks_on_threads.h"
#include "starved_backend.h"

namespace dllm {
namespace {

std::shared_ptr<const Model> small_model() { return *Model::load(test::random_source({})); }

StepPlan first_rows() {
  StepPlan plan;
  for (Position p = 0; p < 8; ++p) plan.rows.push_back({p, p + 1});
  plan.visible = {{0, 8}};
  plan.scored = {2, 5};
  return plan;
}

std::unique_ptr<Backend> backend_of(const Model& model, Communicator& ranks) {
  CpuOptions options;
  options.threads = 1;
  options.ranks = &ranks;
  return *CpuBackend::create(
      model.desc(), [&](StepShape shape) { return model.build(shape); }, model.weights(), options);
}

TEST(RankedBackend, CachesEndOnAnyThread) {
  const auto model = small_model();
  auto group = test::local_group(2);
  std::thread follower([&] { EXPECT_TRUE(follow_ranks(*backend_of(*model, *group[1]), *group[1])); });
  {
    auto own = backend_of(*model, *group[0]);
    RankedBackend backend(std::move(own), std::shared_ptr<Communicator>(std::move(group[0])));
    const auto cache = *backend.make_cache(64);
    SequenceStep step{cache.get(), first_rows(), {}, {}};
    ASSERT_TRUE(backend.forward({&step, 1}));
    std::vector<std::unique_ptr<KvCache>> others;
    for (int i = 0; i < 200; ++i) others.push_back(*backend.make_cache(64));
    std::thread ends([&] {
      for (std::size_t i = 1; i < others.size(); ++i) {
        others[i]->copy(*others[0], {0, 0}, 0);
        others[i].reset();
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
    for (int i = 0; i < 50; ++i) {
      const auto scores = backend.forward({&step, 1});
      EXPECT_TRUE(scores) << scores.error().message();
    }
    ends.join();
    EXPECT_TRUE(backend.forward({&step, 1}));
  }
  follower.join();
}

TEST(RankedBackend, AChildProcessLeavesTheOthersAlone) {
  const auto model = small_model();
  auto group = test::local_group(2);
  std::thread follower([&] { EXPECT_TRUE(follow_ranks(*backend_of(*model, *group[1]), *group[1])); });
  {
    auto own = backend_of(*model, *group[0]);
    auto backend = std::make_unique<RankedBackend>(std::move(own), std::shared_ptr<Communicator>(std::move(group[0])));
    auto cache = *backend->make_cache(64);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);  // were the others asked, nobody would answer
      const auto made = backend->make_cache(64);
      const bool refused = !made && made.error().code == ErrorCode::kUsage;
      cache.reset();
      backend.reset();
      ::_exit(refused ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(backend->make_cache(64)) << "the parent goes on";
  }
  follower.join();
}

/// Branches of caches on all ranks, with the bits of one process.
TEST(RankedBackend, BranchesAreSeparateRequests) {
  for (const char* architecture : {"llada", "diffusion-gemma"}) {
    const auto model = *Model::load(
        test::random_source({.architecture = architecture, .layers = 4, .kv_heads = 2, .type = TensorType::kQ8_0}));
    const auto part = [&](Communicator* ranks, SplitKind split) {
      CpuOptions options;
      options.threads = 1;
      options.ranks = ranks;
      options.split = split;
      return *CpuBackend::create(
          model->desc(), [&](StepShape shape) { return model->build(shape); }, model->weights(), options);
    };
    const auto alone = test::BranchProperties(*part(nullptr, SplitKind::kRows), 0).check();
    for (const SplitKind split : {SplitKind::kOutputs, SplitKind::kRows, SplitKind::kLayers}) {
      auto group = test::local_group(3);
      std::vector<std::thread> followers;
      for (int rank = 1; rank < 3; ++rank)
        followers.emplace_back([&, rank] {
          Communicator& own = *group[static_cast<std::size_t>(rank)];
          const auto followed = follow_ranks(*part(&own, split), own);
          EXPECT_TRUE(followed) << followed.error().message();
        });
      {
        auto own = part(group[0].get(), split);
        RankedBackend backend(std::move(own), std::shared_ptr<Communicator>(std::move(group[0])));
        EXPECT_EQ(test::BranchProperties(backend, 0).check(), alone) << architecture << static_cast<int>(split);
      }
      for (std::thread& follower : followers) follower.join();
    }
  }
}

/// Commands about branches that rank 0 does not give.
TEST(RankedBackend, AFollowerRefusesBranchesThatDoNotFit) {
  const auto model = small_model();
  const auto refused = [&](const std::vector<Command>& commands) {
    auto group = test::local_group(2);
    Expected<void> followed;
    std::thread follower([&] { followed = follow_ranks(*backend_of(*model, *group[1]), *group[1]); });
    for (const std::uint32_t cache : {1U, 2U, 3U, 4U}) {
      (void)group[0]->broadcast(encode_command(MakeCache{cache, cache == 4 ? 32 : 64}));
      (void)agree(*group[0], {});
    }
    for (const Command& command : commands) (void)group[0]->broadcast(encode_command(command));
    (void)group[0]->broadcast(encode_command(Leave{}));
    follower.join();
    return !followed;
  };
  const std::vector<PlanRow> at_63 = {{63, 1}}, at_64 = {{64, 1}};
  EXPECT_FALSE(refused({FollowCache{1, 2, at_63}, FollowCache{3, 1, {}}, AdoptRows{1, 3}, DropCache{2}, DropCache{3}}));
  EXPECT_TRUE(refused({FollowCache{1, 2, at_64}})) << "beyond the end";
  EXPECT_TRUE(refused({FollowCache{1, 1, {}}})) << "itself";
  EXPECT_TRUE(refused({FollowCache{1, 2, {}}, FollowCache{3, 1, {}}, FollowCache{2, 3, {}}})) << "a ring";
  EXPECT_TRUE(refused({FollowCache{4, 1, {}}})) << "of another capacity";
  EXPECT_TRUE(refused({FollowCache{9, 1, {}}})) << "nobody has made it";
  EXPECT_TRUE(refused({AdoptRows{2, 1}})) << "no branch of it";
  EXPECT_TRUE(refused({FollowCache{1, 2, at_63}, DropCache{2}, AdoptRows{2, 1}})) << "which has ended";
  EXPECT_TRUE(refused({FollowCache{1, 2, at_63}, DropCache{2}, CopyRows{1, 3, {63, 64}, 0}})) << "with its branch";
}

/// What rank 0 gets of the other's scores is wrong.
class Damaging final : public Communicator {
 public:
  explicit Damaging(std::unique_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}
  int rank() const override { return ranks_->rank(); }
  int size() const override { return ranks_->size(); }
  Expected<void> all_gather(std::span<const std::byte> own, std::span<const std::size_t> sizes,
                            std::span<std::byte> all) override {
    auto gathered = ranks_->all_gather(own, sizes, all);
    // Scores are the bytes after their numbers of bytes.
    if (after_lengths_) std::ranges::fill(all.subspan(sizes[0]), std::byte{0xff});
    after_lengths_ = sizes[0] == 8 && sizes[1] == 8;
    return gathered;
  }
  Expected<std::vector<std::byte>> broadcast(std::vector<std::byte> message) override {
    return ranks_->broadcast(std::move(message));
  }
  Expected<std::vector<std::byte>> scatter(std::vector<std::vector<std::byte>> parts, std::uint64_t most) override {
    return ranks_->scatter(std::move(parts), most);
  }
  bool lost() const override { return ranks_->lost(); }
  void abort(const std::string& why) override { ranks_->abort(why); }

 private:
  std::unique_ptr<Communicator> ranks_;
  bool after_lengths_ = false;
};

TEST(RankedBackend, RunsPlansOfWhichPositionsLead) {
  const test::Script script = [](Backend& backend) {
    EXPECT_TRUE(backend.runs_lead());
    const auto cache = *backend.make_cache(32);
    SequenceStep step{cache.get(), first_rows(), {}, {}};
    step.plan.causal_block = 1;
    step.request.logits = true;
    test::Trace trace = *backend.forward({&step, 1});
    step.plan.rows.clear();
    for (Position p = 7; p < 24; ++p) step.plan.rows.push_back({p, p + 2});
    step.plan.visible = {{0, 24}};
    step.plan.scored = {0, 1, 4, 9, 12, 16};
    step.plan.lead = {{0, 8}, {11, 13}, {20, 21}};
    trace.push_back((*backend.forward({&step, 1}))[0]);
    step.plan.lead = {{0, 8}};
    step.plan.apart = {{8, 16}, {16, 24}};
    trace.push_back((*backend.forward({&step, 1}))[0]);
    return trace;
  };
  test::expect_same_bits(*small_model(), script, {2, 3}, "lead");
}

TEST(RankedBackend, NobodyWaitsForARankThatGotSomethingWrong) {
  const auto model = small_model();
  auto group = test::local_group(2);
  Expected<void> followed;
  std::thread follower([&] { followed = follow_ranks(*backend_of(*model, *group[1]), *group[1]); });
  const auto first = std::make_shared<Damaging>(std::move(group[0]));
  RankedBackend backend(backend_of(*model, *first), first);
  const auto cache = *backend.make_cache(64);
  SequenceStep step{cache.get(), first_rows(), {}, {}};
  const auto scores = backend.forward({&step, 1});
  ASSERT_FALSE(scores);
  EXPECT_EQ(scores.error().what, "rank 1 sent scores of another shape");
  EXPECT_TRUE(backend.lost());
  follower.join();
  ASSERT_FALSE(followed);
  EXPECT_EQ(followed.error().what, scores.error().what);
}

TEST(RankedBackend, ALackOfMemoryEndsThePassOfAllRanks) {
  const auto model = small_model();
  for (const int starved : {0, 1}) {
    auto group = test::local_group(2);
    std::thread follower([&] {
      test::StarvedBackend own(backend_of(*model, *group[1]), starved == 1);
      EXPECT_FALSE(follow_ranks(own, *group[1])) << starved;
    });
    {
      const std::shared_ptr<Communicator> ranks(std::move(group[0]));
      RankedBackend backend(std::make_unique<test::StarvedBackend>(backend_of(*model, *ranks), starved == 0), ranks);
      const auto cache = *backend.make_cache(16);
      SequenceStep step{cache.get(), first_rows(), {}, {}};
      EXPECT_FALSE(backend.forward({&step, 1})) << starved;
      EXPECT_FALSE(cache->holds(0));
      EXPECT_FALSE(backend.make_cache(16)) << "no rank follows";
    }
    follower.join();
  }
}

TEST(RankedBackend, TheFirstFailureReachesAllAsItIs) {
  const auto group = test::local_group(3);
  std::vector<Expected<void>> seen(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      Expected<void> own;
      if (rank > 0)
        own = Error{rank == 1 ? ErrorCode::kMismatch : ErrorCode::kUsage, "computes otherwise", "--arithmetic", "name"};
      seen[static_cast<std::size_t>(rank)] = agree(*group[static_cast<std::size_t>(rank)], own);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Expected<void>& one : seen) {
    ASSERT_FALSE(one);
    EXPECT_EQ(one.error().code, ErrorCode::kMismatch);
    EXPECT_EQ(one.error().hint, "name");
  }
  EXPECT_EQ(seen[0].error().where, "rank 1: --arithmetic");
  EXPECT_EQ(seen[1].error().where, "--arithmetic");
}

}  // namespace
}  // namespace dllm
