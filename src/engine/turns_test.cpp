#include "engine/turns.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/testing/child_process.h"
#include "dllm/model.h"

namespace dllm {
namespace {

LanguageModel quiet_model(std::int32_t threads, const std::string& backend = "cpu") {
  LoadOptions options;
  options.threads = threads;
  options.backend = backend;
  options.warnings = false;
  auto model = LanguageModel::load("", options);
  EXPECT_TRUE(model.has_value());
  return *std::move(model);
}

GenerateOptions one_by_one(std::int32_t length) {
  GenerateOptions options;
  EXPECT_TRUE(options.set("length", std::to_string(length)));
  EXPECT_TRUE(options.set("algorithm", "low-confidence"));
  return options;
}

/// Counts what each thread is asked by Turns: first before it is in the queue, then again and again while it waits
/// there.
class CountedPolls {
 public:
  bool operator()() {
    const std::lock_guard lock(mutex_);
    ++counts_[std::this_thread::get_id()];
    return true;
  }
  void wait_until_queued(std::thread::id thread) {
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        if (counts_[thread] > 1) return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  std::mutex mutex_;
  std::map<std::thread::id, int> counts_;
};

TEST(Turns, AreTakenInTheOrderOfAsking) {
  CountedPolls polls;
  Turns turns([&polls] { return polls(); });
  std::atomic<int> order{0};
  int first = -1, second = -1;
  std::optional<Turns::Turn> mine(*turns.take());
  std::thread early([&] {
    const auto turn = turns.take();
    first = order++;
  });
  polls.wait_until_queued(early.get_id());
  std::thread late([&] {
    const auto turn = turns.take();
    second = order++;
  });
  polls.wait_until_queued(late.get_id());
  mine.reset();
  // Whoever ends a turn and asks at once is behind those who wait.
  const auto again = turns.take();
  EXPECT_EQ(order, 2);
  early.join();
  late.join();
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 1);
}

TEST(Turns, AThreadThatHasOneGetsNoSecond) {
  Turns turns;
  const auto turn = turns.take();
  const auto again = turns.take();
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kUsage);
  EXPECT_NE(again.error().hint, "");
}

TEST(Turns, WhoWaitsIsAskedWhetherItStillWantsTo) {
  int polls = 0;
  Turns turns([&] {
    if (++polls == 6) throw std::string("interrupted");
    return polls != 4;
  });
  std::optional<Turns::Turn> other;
  std::thread([&] { other.emplace(*turns.take()); }).join();
  const auto ended = turns.take();
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::kCancelled);
  EXPECT_THROW((void)turns.take(), std::string);
  other.reset();
  EXPECT_TRUE(turns.take()) << "those who left are not waited for";
}

TEST(Turns, CallbacksMayUseTheModel) {
  const LanguageModel model = quiet_model(2);
  const Generation alone = *model.generate("Solve 17+4.", one_by_one(16));
  const Generation outer = *model.generate("3+4=", one_by_one(12));
  int calls = 0;
  const auto nested = model.generate("3+4=", one_by_one(12), [&](const StepEvent&) {
    // On this thread, and on one that this thread waits for.
    EXPECT_EQ(model.generate("Solve 17+4.", one_by_one(16))->hash, alone.hash);
    std::thread([&] { EXPECT_EQ(model.generate("Solve 17+4.", one_by_one(16))->hash, alone.hash); }).join();
    EXPECT_TRUE(model.logits({1, 2, 3}, false));
    return ++calls > 0;
  });
  ASSERT_TRUE(nested) << nested.error().message();
  EXPECT_EQ(nested->ids, outer.ids);
  EXPECT_EQ(nested->commit_step, outer.commit_step);
  EXPECT_EQ(calls, outer.stats.steps);
}

TEST(Turns, CallbacksMayUseTheSecondPath) {
  const LanguageModel model = quiet_model(1);
  GenerateOptions options;
  for (const auto& [key, value] : {std::pair{"preset", "fast"}, {"refresh_path", "second"}, {"length", "48"}})
    ASSERT_TRUE(options.set(key, value)) << key;
  const auto alone = model.generate("Dan has 7 apples. Ann gives Dan 5 more.", options);
  ASSERT_TRUE(alone) << alone.error().message();
  const auto nested = model.generate("Dan has 7 apples. Ann gives Dan 5 more.", options, [&](const StepEvent&) {
    EXPECT_EQ(model.generate("Dan has 7 apples. Ann gives Dan 5 more.", options)->hash, alone->hash);
    return true;
  });
  EXPECT_EQ(nested->hash, alone->hash);
}

#ifndef DLLM_WITHOUT_NPU
TEST(Turns, AnswersInVirtualTimeAreNotMixed) {
  const LanguageModel model = quiet_model(1, "npu");
  const auto alone = model.generate("3+4=", one_by_one(4));
  ASSERT_TRUE(alone) << alone.error().message();
  int refused = 0;
  const auto outer = model.generate("3+4=", one_by_one(4), [&](const StepEvent&) {
    const auto inner = model.generate("3+4=", one_by_one(4));
    refused += !inner && inner.error().code == ErrorCode::kUsage ? 1 : 0;
    return true;
  });
  EXPECT_EQ(refused, 4);
  EXPECT_EQ(outer->virtual_time->parts.seconds(), alone->virtual_time->parts.seconds());
}
#endif

#ifndef __SANITIZE_THREAD__  // which supports no threads in children of processes with threads

bool in_child_process(const std::function<bool()>& body) { return test::in_child(body, 600); }

TEST(Forks, AModelWorksInAChildProcess) {
#ifdef DLLM_WITHOUT_NPU
  constexpr std::string_view kBackends[] = {"cpu"};
#else
  constexpr std::string_view kBackends[] = {"cpu", "npu"};
#endif
  for (const std::string_view backend : kBackends) {
    auto model = std::make_optional(quiet_model(3, std::string(backend)));
    const auto answers = [&](std::uint64_t hash) { return model->generate("3+4=", one_by_one(8))->hash == hash; };
    const std::uint64_t hash = model->generate("3+4=", one_by_one(8))->hash;
    EXPECT_TRUE(in_child_process([&] {
      const bool right = answers(hash);
      model.reset();
      return right;
    }));
    // A callback that forks goes on in both processes.
    bool child_right = true;
    const pid_t parent = ::getpid();
    const auto forked = model->generate("3+4=", one_by_one(8), [&, first = true](const StepEvent&) mutable {
      if (std::exchange(first, false)) {
        const pid_t child = ::fork();
        if (child == 0) ::alarm(600);
        int status = 0;
        if (child > 0) child_right = ::waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status);
      }
      return true;
    });
    if (::getpid() != parent) ::_exit(forked->hash == hash && answers(hash) ? 0 : 1);
    EXPECT_TRUE(child_right) << backend;
    EXPECT_EQ(forked->hash, hash);
  }
}

TEST(Forks, TheSecondPathWorksInAChildProcess) {
  const LanguageModel model = quiet_model(2);
  GenerateOptions options;
  for (const auto& [key, value] : {std::pair{"preset", "fast"}, {"refresh_path", "second"}, {"length", "48"}})
    ASSERT_TRUE(options.set(key, value)) << key;
  const std::uint64_t hash = model.generate("Tell me about apples", options)->hash;
  EXPECT_TRUE(in_child_process([&] { return model.generate("Tell me about apples", options)->hash == hash; }));
}

/// What a thread of the parent was computing is half done in the child.
TEST(Forks, AModelInUseByAnotherThreadIsRefused) {
  Turns turns;
  std::atomic<bool> held{false}, release{false};
  std::thread other([&] {
    const auto turn = turns.take();
    held = true;
    while (!release) std::this_thread::yield();
  });
  while (!held) std::this_thread::yield();
  EXPECT_TRUE(in_child_process([&] {
    const auto turn = turns.take();
    return !turn && turn.error().code == ErrorCode::kUsage && turn.error().hint.find("load the model") == 0 &&
           in_child_process([&] { return !turns.take(); });
  }));
  release = true;
  other.join();
  EXPECT_TRUE(turns.take());
}

#endif

}  // namespace
}  // namespace dllm
