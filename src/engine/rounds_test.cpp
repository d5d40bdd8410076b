// What becomes of the answers of a pass that fails.
#include "engine/rounds.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "dllm/scheduler.h"

namespace dllm {
namespace {

TEST(Rounds, AFailedPassEndsItsAnswersAndNoOthers) {
  const auto works = std::make_shared<std::atomic<bool>>(true);
  LoadOptions load;
  load.poll = [works] { return works->load(); };
  const LanguageModel model = *LanguageModel::load("", load);
  const auto scheduler = *Scheduler::create(model, {.parallel = 2, .queue = 8});
  std::vector<std::string> ends;
  const auto ask = [&](const std::string& name) {
    ScheduledRequest request;
    request.prompt = {5, 6, 7};
    request.options.length = 16;
    request.options.exact_length = true;
    request.options.decoder.name = "low-confidence";
    request.on_done = [&ends, name](const Expected<Generation>& answer) {
      ends.push_back(name + (answer ? " answered" : " failed"));
    };
    std::vector<ScheduledRequest> one;
    one.push_back(std::move(request));
    EXPECT_TRUE(scheduler->submit(std::move(one)));
  };
  for (const char* name : {"first", "second", "third"}) ask(name);
  ASSERT_TRUE(scheduler->step());
  *works = false;
  scheduler->step();
  EXPECT_EQ(ends, (std::vector<std::string>{"first failed", "second failed"}));
  EXPECT_EQ(scheduler->counters().running, 0);
  *works = true;
  while (scheduler->step()) {
  }
  EXPECT_EQ(ends.size(), 3u);
  EXPECT_EQ(ends.back(), "third answered");
  EXPECT_EQ(scheduler->counters().finished, 1u);
}

TEST(Rounds, WhatACallbackThrowsEndsItsAnswerAlone) {
  const LanguageModel model = *LanguageModel::load("", {});
  const auto scheduler = *Scheduler::create(model, {.parallel = 2, .queue = 8});
  std::vector<std::string> ends(2);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    ScheduledRequest request;
    request.prompt = {5, 6, 7};
    request.options.length = 16;
    request.on_step = [i](const StepEvent&) {
      if (i == 0) throw std::runtime_error("no more");
      return true;
    };
    request.on_done = [&ends, i](const Expected<Generation>& answer) {
      ends[i] = answer ? "answered" : answer.error().what;
    };
    std::vector<ScheduledRequest> one;
    one.push_back(std::move(request));
    ASSERT_TRUE(scheduler->submit(std::move(one)));
  }
  while (scheduler->step()) {
  }
  EXPECT_EQ(ends, (std::vector<std::string>{"no more", "answered"}));
}

}  // namespace
}  // namespace dllm
