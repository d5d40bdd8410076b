// Many requests on the embedded model: answers equal those of separate requests, and requests leave when they should.
#include "dllm/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <thread>

namespace dllm {
namespace {

struct Question {
  const char* text;
  std::vector<std::pair<const char*, const char*>> options;
};

/// Eight requests of different methods, lengths, windows and caches.
std::vector<Question> mixed() {
  return {{"Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?", {{"length", "64"}}},
          {"3 + 4 =", {{"length", "16"}, {"algorithm", "low-confidence"}}},
          {"Sort these words: pear apple fig", {{"length", "96"}, {"cache", "dual"}, {"window", "sliding"}}},
          {"Reverse: a b c d", {{"length", "32"}, {"temperature", "0.7"}, {"seed", "5"}}},
          {"Copy: x y z", {{"length", "40"}, {"cfg_scale", "0.5"}}},
          {"What is the largest of 3 17 9?", {{"length", "48"}, {"algorithm", "revision"}, {"cache", "vicinity"}}},
          {"7 - 2 =", {{"length", "24"}, {"algorithm", "origin"}, {"steps", "8"}, {"seed", "3"}}},
          {"Solve 17+4.", {{"length", "64"}, {"exact_length", "true"}, {"cache", "prefix"}}}};
}

class SchedulerTest : public testing::Test {
 protected:
  ScheduledRequest request(const Question& question, std::vector<std::pair<int, Generation>>* answers, int number) {
    ScheduledRequest one;
    one.prompt = *model.apply_template({{"user", question.text}});
    for (const auto& [key, value] : question.options) {
      const auto set = one.options.set(key, value);
      EXPECT_TRUE(set) << key << ": " << set.error().message();
    }
    one.on_done = [answers, number](Expected<Generation> answer) {
      ASSERT_TRUE(answer) << answer.error().message();
      answers->emplace_back(number, *std::move(answer));
    };
    return one;
  }
  std::unique_ptr<Scheduler> scheduler(std::int32_t parallel, std::int32_t queue = 64) {
    return *Scheduler::create(model, {.parallel = parallel, .queue = queue});
  }

  LanguageModel model = *LanguageModel::load("");
};

TEST_F(SchedulerTest, AnswersAreThoseOfRequestsAlone) {
  const std::vector<Question> questions = mixed();
  for (const std::int32_t parallel : {1, 3, 8}) {
    const auto all = scheduler(parallel);
    std::vector<std::pair<int, Generation>> answers;
    std::vector<ScheduledRequest> requests;
    for (std::size_t i = 0; i < questions.size(); ++i)
      requests.push_back(request(questions[i], &answers, static_cast<int>(i)));
    ASSERT_EQ(all->submit(std::move(requests))->size(), questions.size());
    std::size_t most = 0;
    while (all->step()) most = std::max(most, static_cast<std::size_t>(all->counters().running));
    EXPECT_LE(most, static_cast<std::size_t>(parallel));
    EXPECT_GE(most, std::min<std::size_t>(static_cast<std::size_t>(parallel), 5));
    ASSERT_EQ(answers.size(), questions.size());
    for (const auto& [number, ours] : answers) {
      const ScheduledRequest again = request(questions[static_cast<std::size_t>(number)], nullptr, 0);
      const Generation alone = *model.generate_ids(again.prompt, again.options);
      EXPECT_EQ(ours.ids, alone.ids) << "request " << number << " of " << parallel << " at once";
      EXPECT_EQ(ours.confidence, alone.confidence);
      EXPECT_EQ(ours.commit_step, alone.commit_step);
      EXPECT_EQ(ours.text, alone.text);
      EXPECT_EQ(ours.hash, alone.hash);
      EXPECT_EQ(ours.stats.nfe, alone.stats.nfe);
    }
    EXPECT_EQ(all->counters().finished, questions.size());
    EXPECT_EQ(all->counters().running, 0);
  }
}

/// Also in every callback.
TEST_F(SchedulerTest, CountsAreThoseOfTheList) {
  const auto all = scheduler(/*parallel=*/2);
  const std::vector<Question> questions = mixed();
  int asked = 0;
  const auto check = [&] {
    const SchedulerCounters counts = all->counters();
    const std::vector<RequestState> list = all->requests();
    const auto running = std::ranges::count_if(list, [](const RequestState& state) { return state.running; });
    EXPECT_EQ(counts.running, running);
    EXPECT_EQ(counts.waiting, static_cast<std::int64_t>(list.size()) - running);
    EXPECT_EQ(counts.submitted, counts.finished + list.size());
    ++asked;
    return true;
  };
  std::vector<ScheduledRequest> requests;
  for (const Question& question : questions) {
    ScheduledRequest one = request(question, nullptr, 0);
    one.on_step = [&](const StepEvent&) { return check() && all->counters().positions > 0; };
    one.on_done = [&](const Expected<Generation>& answer) {
      EXPECT_TRUE(answer && answer->finish != FinishReason::kCancelled);
      check();
    };
    requests.push_back(std::move(one));
  }
  ASSERT_TRUE(all->submit(std::move(requests)));
  check();
  while (all->step()) check();
  EXPECT_EQ(all->counters().positions, 0);
  EXPECT_GT(asked, 50);
}

TEST_F(SchedulerTest, FirstDoneIsFirstOut) {
  std::vector<std::pair<int, Generation>> answers;
  const auto all = scheduler(2);
  const Question slow{"Copy: x y z", {{"length", "64"}, {"algorithm", "low-confidence"}, {"exact_length", "true"}}};
  const Question quick{"3 + 4 =", {{"length", "8"}, {"exact_length", "true"}}};
  std::vector<ScheduledRequest> requests;
  requests.push_back(request(slow, &answers, 0));
  for (int i = 1; i <= 3; ++i) requests.push_back(request(quick, &answers, i));
  ASSERT_TRUE(all->submit(std::move(requests)));
  while (all->step()) {
  }
  ASSERT_EQ(answers.size(), 4u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(answers[static_cast<std::size_t>(i)].first, i + 1);
  EXPECT_EQ(answers[3].first, 0);
}

TEST_F(SchedulerTest, ACancelledRequestIsNoPartOfTheNextRound) {
  std::vector<std::pair<int, Generation>> answers;
  const auto all = scheduler(2);
  const Question slow{"Copy: x y z", {{"length", "64"}, {"algorithm", "low-confidence"}, {"exact_length", "true"}}};
  std::vector<ScheduledRequest> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(request(slow, &answers, i));
  const auto ids = *all->submit(std::move(requests));
  ASSERT_TRUE(all->step());
  const std::uint64_t rows = all->counters().rows;
  EXPECT_TRUE(all->cancel(ids[0]));
  EXPECT_TRUE(all->cancel(ids[2]));  // it waits
  ASSERT_TRUE(all->step());
  ASSERT_EQ(answers.size(), 2u);
  for (const auto& [number, answer] : answers) {
    EXPECT_TRUE(number == 0 || number == 2);
    EXPECT_EQ(answer.finish, FinishReason::kCancelled);
  }
  // Request 3 has taken the slot: the round had the rows of two requests, not of three.
  EXPECT_EQ(all->counters().rows, 2 * rows);
  std::vector<RequestId> left;
  for (const RequestState& state : all->requests()) left.push_back(state.id);
  EXPECT_EQ(left, (std::vector<RequestId>{ids[1], ids[3]}));
  while (all->step()) {
  }
  EXPECT_EQ(answers.size(), 4u);
  EXPECT_FALSE(all->cancel(ids[1]));
  EXPECT_FALSE(all->step()) << "a finished request does not keep the scheduler running";
  EXPECT_EQ(all->counters().cancelled, 2u);
}

TEST_F(SchedulerTest, ACallbackMayCancel) {
  std::vector<std::pair<int, Generation>> answers;
  const auto all = scheduler(4);
  ScheduledRequest one = request({"Copy: x y z", {{"length", "64"}, {"algorithm", "low-confidence"}}}, &answers, 0);
  int heard = 0;
  one.detail = StepDetail::kText;
  one.on_step = [&](const StepEvent& event) {
    EXPECT_TRUE(event.canvas.empty());
    return ++heard < 3;
  };
  std::vector<ScheduledRequest> requests;
  requests.push_back(std::move(one));
  ASSERT_TRUE(all->submit(std::move(requests)));
  while (all->step()) {
  }
  EXPECT_EQ(heard, 3);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].second.finish, FinishReason::kCancelled);
}

TEST_F(SchedulerTest, TheQueueIsBoundedAndDeadlinesPass) {
  std::vector<std::pair<int, Generation>> answers;
  const auto all = scheduler(1, 2);
  const Question slow{"Copy: x y z", {{"length", "64"}, {"algorithm", "low-confidence"}, {"exact_length", "true"}}};
  std::vector<ScheduledRequest> four;
  for (int i = 0; i < 4; ++i) four.push_back(request(slow, &answers, i));
  const auto refused = all->submit(std::move(four));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().where, kQueueFull);
  EXPECT_TRUE(all->requests().empty()) << "all or none";
  EXPECT_EQ(all->counters().refused, 4u);

  std::optional<Error> late;
  std::vector<ScheduledRequest> two;
  two.push_back(request(slow, &answers, 0));
  two.push_back(request(slow, &answers, 1));
  two[1].deadline = std::chrono::steady_clock::now();
  two[1].on_done = [&](Expected<Generation> answer) { late = answer ? std::nullopt : std::optional(answer.error()); };
  ASSERT_TRUE(all->submit(std::move(two)));
  ASSERT_TRUE(all->step());
  ASSERT_TRUE(late);
  EXPECT_EQ(late->where, kDeadline);
  while (all->step()) {
  }
  EXPECT_EQ(answers.size(), 1u);
}

TEST_F(SchedulerTest, SecondsOfRequestsAddUpToThoseOfTheRounds) {
  std::vector<std::pair<int, Generation>> answers;
  const auto all = scheduler(3);
  const Question question{"3 + 4 =", {{"length", "16"}, {"exact_length", "true"}}};
  std::vector<ScheduledRequest> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(request(question, &answers, i));
  ASSERT_TRUE(all->submit(std::move(requests)));
  while (all->step()) {
  }
  double sum = 0;
  for (const auto& [number, answer] : answers) sum += answer.stats.seconds;
  EXPECT_NEAR(sum, all->counters().round_seconds, 1e-6);
}

TEST_F(SchedulerTest, ItsEndIsToldToAllThatRunOrWait) {
  std::vector<std::pair<int, Generation>> answers;
  auto all = scheduler(2);
  const Question slow{"Copy: x y z", {{"length", "64"}, {"algorithm", "low-confidence"}, {"exact_length", "true"}}};
  std::vector<ScheduledRequest> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(request(slow, &answers, i));
  ASSERT_TRUE(all->submit(std::move(requests)));
  ASSERT_TRUE(all->step());
  all.reset();
  ASSERT_EQ(answers.size(), 3u);
  for (const auto& [number, answer] : answers) EXPECT_EQ(answer.finish, FinishReason::kCancelled);
}

TEST_F(SchedulerTest, RefusesWhatGenerateRefuses) {
  const auto all = scheduler(2);
  const auto submitted = [&](ScheduledRequest one) {
    std::vector<ScheduledRequest> requests;
    requests.push_back(request({"3 + 4 =", {}}, nullptr, 0));
    requests.push_back(std::move(one));
    std::size_t which = 0;
    auto result = all->submit(std::move(requests), &which);
    EXPECT_EQ(which, 1u);
    return result;
  };
  ScheduledRequest outside;
  outside.prompt = {1 << 20};
  EXPECT_FALSE(submitted(std::move(outside)));
  EXPECT_FALSE(submitted(request({"x", {{"length", "1000000"}}}, nullptr, 0)));
  EXPECT_FALSE(submitted(request({"x", {{"algorithm", "low-confidence"}, {"threshold", "0.5"}}}, nullptr, 0)));
  EXPECT_FALSE(Scheduler::create(model, {.parallel = 0}));
  EXPECT_FALSE(all->step());
}

/// Reported text is never taken back, whatever the method revises, and ends up as the answer.
TEST_F(SchedulerTest, TextGrowsUnderEveryDecoder) {
  const auto all = scheduler(6);
  const MethodInfo* first = options_info().parts.front().methods.data();
  std::map<std::string, std::string> told;
  int ended = 0;
  for (std::size_t i = 0; i < options_info().parts.front().methods.size(); ++i) {
    const std::string name = first[i].name;
    ScheduledRequest one;
    one.prompt = *model.apply_template({{"user", "Sort these words: pear apple fig"}});
    one.options.length = 48;
    one.options.decoder.name = name;
    if (!model.resolve(one.options)) continue;
    one.detail = StepDetail::kText;
    one.on_step = [&told, name](const StepEvent& event) {
      EXPECT_TRUE(event.text.starts_with(told[name])) << name << ": '" << told[name] << "', '" << event.text << "'";
      told[name] = event.text;
      return true;
    };
    one.on_done = [&told, &ended, name](Expected<Generation> answer) {
      ASSERT_TRUE(answer) << name << ": " << answer.error().message();
      EXPECT_TRUE(answer->text.starts_with(told[name])) << name;
      ++ended;
    };
    std::vector<ScheduledRequest> requests;
    requests.push_back(std::move(one));
    ASSERT_TRUE(all->submit(std::move(requests)));
  }
  while (all->step()) {
  }
  EXPECT_GT(ended, 15);
}

TEST_F(SchedulerTest, TextBehindTheAnswerIsSeenAndKept) {
  const auto all = scheduler(2);
  const std::vector<std::int32_t> suffix = *model.tokenize(" = 9", false);
  std::map<std::string, std::vector<double>> found;  // confidences
  for (const char* decoder : {"low-confidence", "threshold"})
    for (const bool given : {false, true}) {
      ScheduledRequest one;
      one.prompt = *model.prompt_ids("3 +", false);
      one.options.length = 8;
      one.options.exact_length = true;
      one.options.decoder.name = decoder;
      if (given) one.suffix = suffix;
      one.detail = StepDetail::kCanvas;
      one.on_step = [&, given](const StepEvent& event) {
        const std::size_t end = static_cast<std::size_t>(event.prompt_length) + 8;
        EXPECT_EQ(event.canvas.size(), end + (given ? suffix.size() : 0));
        for (std::size_t i = end; i < event.canvas.size(); ++i) {
          EXPECT_EQ(event.canvas[i].token, suffix[i - end]);
          EXPECT_FALSE(event.canvas[i].masked || event.canvas[i].changed);
        }
        return true;
      };
      one.on_done = [&, name = std::string(decoder) + (given ? " given" : "")](Expected<Generation> answer) {
        ASSERT_TRUE(answer) << answer.error().message();
        EXPECT_EQ(answer->ids.size(), 8u);
        EXPECT_EQ(answer->stats.committed_tokens, 8);
        found[name] = answer->confidence;
      };
      std::vector<ScheduledRequest> requests;
      requests.push_back(std::move(one));
      ASSERT_TRUE(all->submit(std::move(requests)));
    }
  while (all->step()) {
  }
  ASSERT_EQ(found.size(), 4u);
  EXPECT_NE(found["low-confidence"], found["low-confidence given"]) << "it was not seen";
  for (const auto& [key, value] : std::map<std::string, std::string>{
           {"algorithm", "revision"}, {"suffix", "none"}, {"compat", "true"}, {"length", "1000000"}}) {
    ScheduledRequest one = request({"x", {}}, nullptr, 0);
    one.suffix = suffix;
    EXPECT_TRUE(one.options.set(key, value));
    std::vector<ScheduledRequest> requests;
    requests.push_back(std::move(one));
    EXPECT_FALSE(all->submit(std::move(requests))) << key;
  }
}

TEST_F(SchedulerTest, RunsOnAThreadOfItsOwnDuringOtherWork) {
  const auto all = scheduler(3);
  std::jthread runner([&](const std::stop_token& stop) { all->run(stop); });
  std::mutex mutex;
  std::vector<std::uint64_t> hashes;
  const Question question{"3 + 4 =", {{"length", "16"}}};
  const ScheduledRequest plain = request(question, nullptr, 0);
  const std::uint64_t alone = model.generate_ids(plain.prompt, plain.options)->hash;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller)
    callers.emplace_back([&] {
      for (int i = 0; i < 4; ++i) {
        ScheduledRequest one = plain;
        one.on_done = [&](Expected<Generation> answer) {
          const std::lock_guard lock(mutex);
          hashes.push_back(answer ? answer->hash : 0);
        };
        std::vector<ScheduledRequest> requests;
        requests.push_back(std::move(one));
        EXPECT_TRUE(all->submit(std::move(requests)));
        EXPECT_TRUE(model.masked_log_probs({1, 2, 3, 4}, {2}));
        (void)all->requests();
      }
    });
  for (std::thread& caller : callers) caller.join();
  std::atomic<bool> posted = false;
  all->post([&] { posted = true; });
  // Both: the answers may have been complete before the job was submitted, and a job without a round is not run.
  while (all->counters().finished < 12 || !posted) std::this_thread::yield();
  runner.request_stop();
  runner.join();
  EXPECT_EQ(hashes, std::vector<std::uint64_t>(12, alone));
}

/// A scheduler that sleeps is woken by what is submitted, posted and cancelled.
TEST_F(SchedulerTest, SleepsUntilThereIsWork) {
  const auto all = scheduler(1);
  std::jthread runner([&](const std::stop_token& stop) { all->run(stop); });
  const auto soon = [](auto condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (!condition() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return condition();
  };
  std::atomic<int> done = 0;
  for (int i = 1; i <= 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it sleeps by then
    ScheduledRequest one = request({"3 + 4 =", {{"length", "8"}}}, nullptr, 0);
    one.on_done = [&](const Expected<Generation>& answer) { done += answer ? 1 : 100; };
    std::vector<ScheduledRequest> requests;
    requests.push_back(std::move(one));
    ASSERT_TRUE(all->submit(std::move(requests)));
    EXPECT_TRUE(soon([&] { return done == i; }));
    std::atomic<bool> posted = false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    all->post([&] { posted = true; });
    ASSERT_TRUE(soon([&] { return posted.load(); }));
  }
}

}  // namespace
}  // namespace dllm
