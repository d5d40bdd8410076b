#include "serve/model_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <set>

#include "dllm/scheduler.h"

namespace dllm::serve {
namespace {

using namespace std::chrono_literals;
using Keep = std::optional<double>;

/// A loaded model that is a name, and tells when it ends.
struct FakeModel final : PooledModel {
  FakeModel(std::string of, std::function<void(const std::string&)> at_end)
      : name(std::move(of)), end(std::move(at_end)) {}
  ~FakeModel() override { end(name); }
  std::string name;
  std::function<void(const std::string&)> end;
};

/// What someone who asked for a model was told.
struct Told {
  std::promise<Expected<ModelPool::Lease>> promise{};
  std::future<Expected<ModelPool::Lease>> future = promise.get_future();
  std::atomic<bool> gone{false};

  Expected<ModelPool::Lease> get() {
    if (future.wait_for(120s) != std::future_status::ready) return Error{ErrorCode::kIo, "nothing was told", "", ""};
    return future.get();
  }
  bool waits(std::chrono::milliseconds time = 300ms) { return future.wait_for(time) == std::future_status::timeout; }
};
using ToldPtr = std::shared_ptr<Told>;

class Pool : public ::testing::Test {
 protected:
  void TearDown() override {
    open_gate();
    pool_.reset();
  }

  void begin(ModelPool::Limits limits) {
    ModelPool::Work work;
    work.load = [this](const ModelEntry& entry, const std::function<bool()>& go_on) { return load(entry, go_on); };
    work.memory_needed = [](const ModelEntry& entry) { return entry.bytes; };
    work.free_memory = [this]() -> std::optional<std::int64_t> {
      if (memory_ == 0) return std::nullopt;
      const std::lock_guard lock(mutex_);
      std::int64_t free = memory_;
      for (const std::string& name : loaded_) free -= bytes_.at(name);
      return free;
    };
    pool_ = std::make_unique<ModelPool>(limits, std::move(work));
  }

  Expected<std::unique_ptr<PooledModel>> load(const ModelEntry& entry, const std::function<bool()>& go_on) {
    ++loads_;
    {
      const std::lock_guard lock(mutex_);
      order_ += entry.name;
    }
    while (!gate_open_) {
      if (!go_on()) {
        ++cancelled_;
        return Error{ErrorCode::kCancelled, "the load was stopped", "", ""};
      }
      std::this_thread::sleep_for(5ms);
    }
    if (entry.name == "bad") return Error{ErrorCode::kInvalidFile, "no model", entry.path, ""};
    const std::lock_guard lock(mutex_);
    loaded_.insert(entry.name);
    return std::unique_ptr<PooledModel>(std::make_unique<FakeModel>(entry.name, [this](const std::string& name) {
      const std::lock_guard ending(mutex_);
      loaded_.erase(name);
    }));
  }

  ToldPtr ask(const std::string& name, Keep keep = {}) {
    auto told = std::make_shared<Told>();
    std::int64_t bytes = 10;
    {
      const std::lock_guard lock(mutex_);
      bytes = bytes_.try_emplace(name, 10).first->second;
    }
    pool_->acquire({.name = name, .bytes = bytes}, keep,
                   {.over = [told] { return told->gone.load(); },
                    .then = [told](Expected<ModelPool::Lease> lease) { told->promise.set_value(std::move(lease)); }});
    return told;
  }
  /// Asks, waits, and gives it back.
  void use(const std::string& name, Keep keep = {}) {
    const auto lease = ask(name, keep)->get();
    ASSERT_TRUE(lease) << lease.error().message();
    ASSERT_EQ(static_cast<FakeModel*>(lease->model)->name, name);
  }

  std::set<std::string> loaded() {
    const std::lock_guard lock(mutex_);
    return loaded_;
  }
  bool becomes(const std::function<bool()>& true_soon) {
    const auto end = std::chrono::steady_clock::now() + 120s;
    while (!true_soon()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(5ms);
    }
    return true;
  }
  void close_gate() { gate_open_ = false; }
  void open_gate() { gate_open_ = true; }

  using Set = std::set<std::string>;
  std::mutex mutex_;
  std::set<std::string> loaded_;
  std::map<std::string, std::int64_t> bytes_;
  std::string order_;
  std::int64_t memory_ = 0;  ///< 0: unknown
  std::atomic<int> loads_{0}, cancelled_{0};
  std::atomic<bool> gate_open_{true};
  std::unique_ptr<ModelPool> pool_;
};

TEST_F(Pool, TheLeastRecentlyUsedIdleModelMakesRoom) {
  begin({.models = 2});
  use("a");
  use("b");
  use("a");
  use("c");
  EXPECT_EQ(loaded(), (Set{"a", "c"}));
  use("b");
  EXPECT_EQ(loaded(), (Set{"b", "c"}));
  EXPECT_EQ(order_, "abcb");
}

TEST_F(Pool, AModelInUseIsNeverUnloaded) {
  begin({.models = 1, .patience_seconds = 0});
  auto lease = ask("a")->get();
  ASSERT_TRUE(lease);
  const ToldPtr b = ask("b");
  EXPECT_TRUE(b->waits());
  EXPECT_EQ(loaded(), Set{"a"});
  *lease = {};
  EXPECT_TRUE(b->get());
  EXPECT_EQ(loaded(), Set{"b"});
}

TEST_F(Pool, WhoWaitsForRoomGetsItThoughTheOtherModelIsAskedForAllTheTime) {
  begin({.models = 1, .patience_seconds = 0.05});
  auto first = ask("a")->get();
  const ToldPtr b = ask("b");
  EXPECT_TRUE(b->waits());
  // Soon those who ask for the model in use wait behind b; until then they get it at once.
  ToldPtr next;
  ASSERT_TRUE(becomes([&] { return (next = ask("a"))->waits(0ms); }));
  *first = {};
  ASSERT_TRUE(b->get());
  EXPECT_TRUE(next->get());
  EXPECT_EQ(order_, "aba");
}

TEST_F(Pool, BeforeThatOthersMayShareIt) {
  begin({.models = 1, .patience_seconds = 60});
  const auto first = ask("a")->get();
  const ToldPtr b = ask("b");
  EXPECT_TRUE(b->waits());
  EXPECT_TRUE(ask("a")->get());
  EXPECT_TRUE(b->waits(0ms));
}

TEST_F(Pool, ThoseWhoAskForAModelMeanwhileLoadItOnce) {
  begin({});
  close_gate();
  std::vector<ToldPtr> all;
  for (int i = 0; i < 8; ++i) all.push_back(ask("a"));
  ASSERT_TRUE(becomes([this] { return loads_ == 1; }));
  for (int i = 0; i < 8; ++i) all.push_back(ask("a"));
  open_gate();
  PooledModel* same = nullptr;
  for (const ToldPtr& one : all) {
    const auto lease = one->get();
    ASSERT_TRUE(lease);
    if (same == nullptr) same = lease->model;
    EXPECT_EQ(lease->model, same);
  }
  EXPECT_EQ(loads_, 1);
}

TEST_F(Pool, AFailedLoadIsToldToAllWhoWait) {
  begin({});
  close_gate();
  const std::vector<ToldPtr> all = {ask("bad"), ask("bad"), ask("bad")};
  open_gate();
  for (const ToldPtr& one : all) {
    const auto lease = one->get();
    ASSERT_FALSE(lease);
    EXPECT_EQ(lease.error().what, "no model");
  }
  EXPECT_TRUE(pool_->states().empty());
  EXPECT_EQ(ask("bad")->get().error().what, "no model");  // it is tried again
  EXPECT_EQ(loads_, 2);
}

TEST_F(Pool, ALoadForWhichNobodyWaitsAnyMoreIsGivenUp) {
  begin({});
  close_gate();
  const ToldPtr first = ask("a"), second = ask("a");
  ASSERT_TRUE(becomes([this] { return loads_ == 1; }));
  first->gone = true;
  EXPECT_TRUE(second->waits());
  EXPECT_EQ(cancelled_, 0);
  second->gone = true;
  EXPECT_TRUE(becomes([this] { return cancelled_ == 1; }));
  EXPECT_TRUE(first->waits(0ms) && second->waits(0ms));
  EXPECT_TRUE(becomes([this] { return pool_->states().empty(); }));
}

TEST_F(Pool, WhoHasGoneBeforeTheLoadBeginsCostsNone) {
  begin({.models = 1});
  auto lease = ask("a")->get();
  const ToldPtr b = ask("b");
  EXPECT_TRUE(b->waits());
  b->gone = true;
  EXPECT_TRUE(becomes([this] { return pool_->states().size() == 1; }));
  std::this_thread::sleep_for(300ms);
  *lease = {};
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(order_, "a");
  EXPECT_EQ(loaded(), Set{"a"});
}

TEST_F(Pool, OnlySoManyWaitForOneModel) {
  begin({.waiting = 2});
  close_gate();
  const ToldPtr first = ask("a"), second = ask("a");
  const auto third = ask("a")->get();
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().where, kQueueFull);
  const ToldPtr other = ask("b");
  open_gate();
  EXPECT_TRUE(first->get() && second->get() && other->get());
}

TEST_F(Pool, WhatDoesNotFitIsRefusedAndUnloadsNothing) {
  memory_ = 25;
  bytes_ = {{"huge", 26}};
  begin({});
  use("a");
  use("b");
  const auto huge = ask("huge")->get();
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, ErrorCode::kResource);
  EXPECT_EQ(loaded(), (Set{"a", "b"}));
}

TEST_F(Pool, AsManyAsFitStay) {
  memory_ = 25;
  bytes_ = {{"large", 20}};
  begin({});
  use("a");
  use("b");
  EXPECT_EQ(loaded(), (Set{"a", "b"}));
  use("c");
  EXPECT_EQ(loaded(), (Set{"b", "c"}));
  use("large");
  EXPECT_EQ(loaded(), Set{"large"});
}

TEST_F(Pool, IdleModelsGoAfterTheirTime) {
  begin({.idle_seconds = 0.2});
  auto used = ask("a")->get();
  use("b");
  EXPECT_TRUE(becomes([this] { return loaded() == Set{"a"}; }));
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(loaded(), Set{"a"});  // in use
  *used = {};
  EXPECT_TRUE(becomes([this] { return loaded().empty(); }));
}

TEST_F(Pool, ARequestSaysHowLongAModelStays) {
  begin({.idle_seconds = 0.1});
  use("a", -1);
  use("b", 10'000);
  use("c");
  EXPECT_TRUE(becomes([this] { return loaded() == Set{"a", "b"} && pool_->states().size() == 2; }));
  {
    const auto states = pool_->states();  // which keeps them loaded
    ASSERT_EQ(states.size(), 2u);
    EXPECT_FALSE(states[0].seconds_left);
    EXPECT_NEAR(states[1].seconds_left.value_or(0), 10'000, 1000);
  }
  use("a", 0);
  EXPECT_TRUE(becomes([this] { return loaded() == Set{"b"}; }));
}

TEST_F(Pool, LookingAtAModelDoesNotKeepIt) {
  begin({.idle_seconds = 0.4});
  use("a");
  EXPECT_TRUE(becomes([this] {
    pool_->states();
    return loaded().empty();
  }));
}

TEST_F(Pool, AModelThatSomeoneLooksAtIsNotUnloaded) {
  begin({});
  use("a");
  {
    const auto seen = pool_->states();
    EXPECT_TRUE(pool_->unload("a"));
    std::this_thread::sleep_for(300ms);
    EXPECT_EQ(loaded(), Set{"a"});
  }
  EXPECT_TRUE(becomes([this] { return loaded().empty(); }));
}

TEST_F(Pool, UnloadWaitsForUsersAndLaterRequestsLoadAgain) {
  begin({});
  EXPECT_FALSE(pool_->unload("a"));
  auto lease = ask("a")->get();
  EXPECT_TRUE(pool_->unload("a"));
  const ToldPtr later = ask("a");
  EXPECT_TRUE(later->waits());
  EXPECT_EQ(loaded(), Set{"a"});
  *lease = {};
  EXPECT_TRUE(later->get());
  EXPECT_EQ(order_, "aa");
}

TEST_F(Pool, TheEndAnswersThoseWhoWait) {
  begin({.models = 1});
  use("a");
  close_gate();
  const ToldPtr loading = ask("b"), waiting = ask("c");
  ASSERT_TRUE(becomes([this] { return loads_ == 2; }));
  pool_->stop();
  for (const ToldPtr& one : {loading, waiting, ask("d")}) {
    const auto lease = one->get();
    ASSERT_FALSE(lease);
    EXPECT_EQ(lease.error().code, ErrorCode::kCancelled);
  }
  EXPECT_EQ(cancelled_, 1);
  pool_.reset();
  EXPECT_TRUE(loaded().empty());
}

TEST_F(Pool, ModelsAreLoadedInTheOrderOfTheirRequests) {
  begin({});
  close_gate();
  std::vector<ToldPtr> all;
  for (const char* name : {"d", "b", "c", "a"}) {
    all.push_back(ask(name));
    std::this_thread::sleep_for(20ms);
  }
  open_gate();
  for (const ToldPtr& one : all) EXPECT_TRUE(one->get());
  EXPECT_EQ(order_, "dbca");
}

/// Many threads, few places: everyone is served, and no model is there twice or too much.
TEST_F(Pool, ManyAtOnce) {
  begin({.models = 2, .patience_seconds = 0.01});
  std::atomic<int> served{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 15; ++i) {
        const std::string name(1, static_cast<char>('a' + (t + i) % 4));
        const auto lease = ask(name)->get();
        if (!lease || static_cast<FakeModel*>(lease->model)->name != name) continue;
        if (loaded().size() <= 2) ++served;
        std::this_thread::sleep_for(1ms);
      }
    });
  threads.clear();
  EXPECT_EQ(served, 90);
}

}  // namespace
}  // namespace dllm::serve
