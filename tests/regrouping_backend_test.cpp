// Groups of ranks that are lost, and made again.
#include "ranks/regrouping_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "random_model.h"
#include "ranks_on_threads.h"

namespace dllm {
namespace {

using Kind = RanksEvent::Kind;

std::unique_ptr<Backend> part_of(const Model& model, Communicator& ranks) {
  CpuOptions options;
  options.threads = 1;
  options.ranks = &ranks;
  return *CpuBackend::create(
      model.desc(), [&](StepShape shape) { return model.build(shape); }, model.weights(), options);
}

StepPlan eight_rows() {
  StepPlan plan;
  for (Position p = 0; p < 8; ++p) plan.rows.push_back({p, p + 1});
  plan.visible = {{0, 8}};
  plan.scored = {2, 5};
  return plan;
}

/// Groups of threads, of which the test can lose one.
class Groups {
 public:
  ~Groups() {
    lose();
    for (std::thread& thread : threads_) thread.join();
  }

  RegroupingBackend::Group make(int ranks) {
    auto group = test::local_group(ranks);
    std::shared_ptr<Communicator> first(std::move(group[0]));
    for (int rank = 1; rank < ranks; ++rank) {
      std::shared_ptr<Communicator> own(std::move(group[static_cast<std::size_t>(rank)]));
      last_ = own;
      threads_.emplace_back([this, own] { (void)follow_ranks(*part_of(*model_, *own), *own); });
    }
    auto part = part_of(*model_, *first);
    return {std::make_unique<RankedBackend>(std::move(part), first), ranks, {}};
  }
  /// The last rank of the last group.
  void lose() {
    if (last_) last_->abort("killed");
  }

 private:
  std::shared_ptr<const Model> model_ = *Model::load(test::random_source({}));
  std::shared_ptr<Communicator> last_;
  std::vector<std::thread> threads_;
};

class Events {
 public:
  std::function<void(const RanksEvent&)> sink() {
    return [this](const RanksEvent& event) {
      const std::lock_guard lock(mutex_);
      kinds_.push_back(event.kind);
    };
  }
  /// Whether it has been told so often, soon.
  bool told(Kind kind, std::ptrdiff_t times = 1) {
    for (int i = 0; i < 2000; ++i) {
      {
        const std::lock_guard lock(mutex_);
        if (std::ranges::count(kinds_, kind) >= times) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  std::ptrdiff_t count(Kind kind) {
    const std::lock_guard lock(mutex_);
    return std::ranges::count(kinds_, kind);
  }

 private:
  std::mutex mutex_;
  std::vector<Kind> kinds_;
};

Expected<std::vector<Scores>> step_on(RegroupingBackend& backend, KvCache& cache) {
  SequenceStep step{&cache, eight_rows(), {}, {}};
  return backend.forward({&step, 1});
}

TEST(RegroupingBackend, AnotherGroupTakesThePlaceOfALostOne) {
  Groups groups;
  Events events;
  std::atomic<int> attempts = 0;
  RegroupingBackend::Maker maker;
  maker.wanted = 2;
  maker.first_wait_s = 0.01;
  maker.make = [&](Absent, const std::function<bool()>&) -> Expected<RegroupingBackend::Group> {
    if (++attempts < 3) return Error{ErrorCode::kIo, "nobody listens there", "rank 1", ""};
    return groups.make(2);
  };
  RegroupingBackend backend(groups.make(2), maker);
  backend.keep(events.sink());
  const auto old = *backend.make_cache(64), empty = *backend.make_cache(64);
  const auto first = step_on(backend, *old);
  ASSERT_TRUE(first) << first.error().message();
  const auto unasked = *backend.make_cache(64);
  ASSERT_TRUE(step_on(backend, *unasked));
  EXPECT_EQ(backend.status().ranks, 2);
  groups.lose();
  const auto lost = step_on(backend, *old);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kResource);
  EXPECT_NE(lost.error().what.find("killed"), std::string::npos) << lost.error().message();
  ASSERT_TRUE(events.told(Kind::kLost));
  ASSERT_TRUE(events.told(Kind::kMade));
  EXPECT_EQ(attempts, 3);
  const RanksStatus status = backend.status();
  EXPECT_EQ(status.ranks, 2);
  EXPECT_EQ(status.groups, 2U);
  EXPECT_EQ(status.lost, 1U);
  EXPECT_EQ(status.failure, "");
  const auto cache = *backend.make_cache(64);
  const auto again = step_on(backend, *cache);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(test::difference(*first, *again), "");
  // What the lost group had is of no use, and is not copied.
  const auto stale = step_on(backend, *old);
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().code, ErrorCode::kResource);
  ASSERT_TRUE(unasked->holds({0, 8}));
  EXPECT_FALSE(step_on(backend, *unasked));
  EXPECT_FALSE(unasked->holds(0)) << "rows of a lost group";
  const auto copy = *backend.make_cache(64);
  copy->copy(*old, {0, 4}, 0);
  EXPECT_FALSE(step_on(backend, *copy));
  EXPECT_TRUE(step_on(backend, *cache)) << "a stale cache is no loss";
  EXPECT_EQ(backend.status().lost, 1U);
}

TEST(RegroupingBackend, WithoutKeepAnErrorStays) {
  Groups groups;
  RegroupingBackend::Maker maker;
  maker.wanted = 2;
  maker.make = [&](Absent, const std::function<bool()>&) -> Expected<RegroupingBackend::Group> {
    ADD_FAILURE() << "nobody has asked for another group";
    return groups.make(2);
  };
  RegroupingBackend backend(groups.make(2), maker);
  const auto cache = *backend.make_cache(64);
  groups.lose();
  for (int i = 0; i < 2; ++i) {
    const auto lost = step_on(backend, *cache);
    ASSERT_FALSE(lost);
    EXPECT_EQ(lost.error().code, ErrorCode::kCancelled);
  }
}

TEST(RegroupingBackend, ItGoesOnWithFewerAfterAWhileOnly) {
  Groups groups;
  Events events;
  std::mutex mutex;
  std::vector<Absent> asked;
  RegroupingBackend::Maker maker;
  maker.wanted = 3;
  maker.first_wait_s = maker.longest_wait_s = 0.02;
  maker.whole_for_s = 0.1;
  maker.busy_for_s = 0.2;
  maker.look_again_s = 0.02;
  std::atomic<bool> there = false;
  maker.any_returned = [&](const std::function<bool()>&) { return there.load(); };
  maker.make = [&](Absent absent, const std::function<bool()>&) -> Expected<RegroupingBackend::Group> {
    {
      const std::lock_guard lock(mutex);
      asked.push_back(absent);
    }
    if (absent == Absent::kUnwilling) return groups.make(2);
    if (absent == Absent::kNone && there) return groups.make(3);
    return Error{ErrorCode::kIo, "nobody listens there", "rank 2", ""};
  };
  RegroupingBackend backend(groups.make(3), maker);
  backend.keep(events.sink());
  const auto cache = *backend.make_cache(64), other = *backend.make_cache(64);
  const auto first = step_on(backend, *cache);
  ASSERT_TRUE(step_on(backend, *other));
  groups.lose();
  ASSERT_FALSE(step_on(backend, *cache));
  ASSERT_FALSE(step_on(backend, *other));
  EXPECT_FALSE(other->holds(0)) << "no group has run its pass";
  const auto no_group = backend.make_cache(64);
  ASSERT_FALSE(no_group);
  EXPECT_EQ(no_group.error().code, ErrorCode::kResource);
  EXPECT_GE(backend.status().retry_s, 1);
  ASSERT_TRUE(events.told(Kind::kMade));
  {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(std::ranges::is_sorted(asked));
    for (const Absent absent : {Absent::kNone, Absent::kSilent, Absent::kUnwilling})
      EXPECT_GE(std::ranges::count(asked, absent), 1) << static_cast<int>(absent);
  }
  EXPECT_EQ(backend.status().ranks, 2);
  const auto fewer = *backend.make_cache(64);
  EXPECT_EQ(test::difference(*first, *step_on(backend, *fewer)), "");
  there = true;
  ASSERT_TRUE(events.told(Kind::kReturned));
  EXPECT_TRUE(step_on(backend, *fewer)) << "what runs goes on until renew()";
  backend.renew([] { return true; });
  EXPECT_EQ(backend.status().ranks, 3);
  EXPECT_FALSE(step_on(backend, *fewer));
  const auto whole = *backend.make_cache(64);
  EXPECT_EQ(test::difference(*first, *step_on(backend, *whole)), "");
}

/// A maker of groups of two, of which all ranks but one are there; the missing one returns when the test says so.
RegroupingBackend::Maker fewer_than_wanted(Groups& groups, std::atomic<bool>& returned) {
  RegroupingBackend::Maker maker;
  maker.wanted = 3;
  maker.first_wait_s = maker.longest_wait_s = maker.look_again_s = 0.01;
  maker.any_returned = [&](const std::function<bool()>&) { return returned.load(); };
  maker.make = [&groups](Absent, const std::function<bool()>&) -> Expected<RegroupingBackend::Group> {
    return groups.make(2);
  };
  return maker;
}

TEST(RegroupingBackend, ARankThatReturnsToALostGroupIsNotTold) {
  Groups groups;
  Events events;
  std::atomic<bool> returned = false, asked = false, answers = false;
  auto maker = fewer_than_wanted(groups, returned);
  maker.any_returned = [&](const std::function<bool()>& go_on) {
    if (answers) return false;  // later looks
    asked = true;
    while (!answers && go_on()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  };
  RegroupingBackend backend(groups.make(2), maker);
  backend.keep(events.sink());
  const auto cache = *backend.make_cache(64);
  while (!asked) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  groups.lose();
  ASSERT_FALSE(step_on(backend, *cache));
  answers = true;
  ASSERT_TRUE(events.told(Kind::kMade));
  EXPECT_EQ(events.count(Kind::kReturned), 0);
  backend.renew([] { return true; });
  EXPECT_EQ(backend.status().groups, 2U) << "the new group is kept";
}

TEST(RegroupingBackend, ARenewalThatFailsIsALoss) {
  Groups groups;
  Events events;
  std::atomic<bool> returned = true, fails = true;
  auto maker = fewer_than_wanted(groups, returned);
  maker.make = [&](Absent, const std::function<bool()>& go_on) -> Expected<RegroupingBackend::Group> {
    if (fails && !go_on()) throw std::bad_alloc();
    if (fails) return Error{ErrorCode::kIo, "nobody listens there", "rank 1", ""};
    return groups.make(2);
  };
  maker.first_wait_s = maker.longest_wait_s = 0.3;
  for (const bool memory : {true, false}) {
    fails = returned = true;
    RegroupingBackend backend(groups.make(2), maker);
    backend.keep(events.sink());
    const auto before = events.count(Kind::kLost), made = events.count(Kind::kMade);
    ASSERT_TRUE(events.told(Kind::kReturned, memory ? 1 : 2));
    backend.renew([memory] { return memory; });
    const RanksStatus status = backend.status();
    EXPECT_EQ(status.ranks, 0);
    EXPECT_EQ(status.lost, 1U);
    EXPECT_NE(status.failure.find(memory ? "nobody listens there" : "out of memory"), std::string::npos)
        << status.failure;
    EXPECT_EQ(events.count(Kind::kLost), before + 1);
    returned = false;
    fails = false;
    EXPECT_TRUE(events.told(Kind::kMade, made + 1)) << "another group is looked for";
    EXPECT_EQ(backend.status().lost, 1U);
  }
}

TEST(RegroupingBackend, WhoLooksForRanksOutlivesALackOfMemory) {
  Groups groups;
  Events events;
  std::atomic<int> lacks = 3;
  std::atomic<bool> returned = false;
  auto maker = fewer_than_wanted(groups, returned);
  maker.make = [&](Absent, const std::function<bool()>&) -> Expected<RegroupingBackend::Group> {
    if (lacks-- > 0) throw std::bad_alloc();
    return groups.make(2);
  };
  RegroupingBackend backend(groups.make(2), maker);
  backend.keep(events.sink());
  const auto cache = *backend.make_cache(64);
  groups.lose();
  ASSERT_FALSE(step_on(backend, *cache));
  EXPECT_TRUE(events.told(Kind::kMade));
  const auto again = *backend.make_cache(64);
  EXPECT_TRUE(step_on(backend, *again));
}

TEST(RegroupingBackend, EveryRankCountsItsPasses) {
  Groups groups;
  RegroupingBackend backend(groups.make(3), {});
  const auto cache = *backend.make_cache(64);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(step_on(backend, *cache));
  const auto times = backend.times();
  ASSERT_TRUE(times) << times.error().message();
  ASSERT_EQ(times->size(), 3U);
  for (const RankTimes& rank : *times) {
    EXPECT_EQ(rank.passes, 4U);
    EXPECT_GT(rank.pass_s, 0);
  }
}

}  // namespace
}  // namespace dllm
