// Answers with given text: ScheduledRequest::form.
#include <gtest/gtest.h>

#include <algorithm>

#include "dllm/scheduler.h"

namespace dllm {
namespace {

class FormTest : public ::testing::Test {
 protected:
  std::unique_ptr<Scheduler> scheduler(std::int32_t parallel) {
    auto made = Scheduler::create(model, {.parallel = parallel, .queue = 64});
    EXPECT_TRUE(made);
    return *std::move(made);
  }

  LanguageModel model = *LanguageModel::load("");
};

/// Three gaps between three texts, on 40 positions, more than a block of 16.
std::vector<std::int32_t> form_of(const LanguageModel& model) {
  std::vector<std::int32_t> form;
  for (const char* text : {"Ben has", " pens. Ann has", " more."}) {
    const auto ids = *model.tokenize(text, false);
    form.insert(form.end(), ids.begin(), ids.end());
    if (form.size() < 35) form.insert(form.end(), form.size() < 12 ? 9 : 5, -1);
  }
  form.insert(form.end(), 40 - form.size(), -1);
  return form;
}

TEST_F(FormTest, AFormIsFilledAndKept) {
  const std::vector<std::int32_t> form = form_of(model);
  int ended = 0;
  const auto all = scheduler(8);  // last: its end calls those that are left
  for (const OptionMap& options : std::vector<OptionMap>{{},
                                                         {{"algorithm", "low-confidence"}, {"steps", std::int64_t{6}}},
                                                         {{"window", "whole"}},
                                                         {{"window", "sliding"}},
                                                         {{"window", "adaptive"}},
                                                         {{"window", "lookahead"}},
                                                         {{"cache", "prefix"}},
                                                         {{"cache", "dual"}},
                                                         {{"cache", "vicinity"}},
                                                         {{"cache", "delayed"}},
                                                         {{"algorithm", "hierarchical"}, {"smooth", 0.5}},
                                                         {{"temperature", 1.5}, {"seed", std::uint64_t{3}}}}) {
    ScheduledRequest one;
    one.prompt = *model.prompt_ids("", false);
    one.form = form;
    one.options.length = static_cast<std::int32_t>(form.size());
    if (!options.contains("window") || options.at("window") != OptionValue("whole")) one.options.block_length = 16;
    for (const auto& [key, value] : options) ASSERT_TRUE(one.options.set(key, to_text(value)));
    one.detail = StepDetail::kCanvas;
    one.on_step = [&](const StepEvent& event) {
      for (std::size_t i = 0; i < form.size(); ++i) {
        const CanvasCell& cell = event.canvas[static_cast<std::size_t>(event.prompt_length) + i];
        const bool kept = cell.token == form[i] && !cell.masked && !cell.changed && cell.confidence == 1;
        EXPECT_TRUE(form[i] == -1 || kept);
      }
      return true;
    };
    one.on_done = [&, name = options.empty() ? "" : to_text(options.begin()->second)](Expected<Generation> answer) {
      ASSERT_TRUE(answer) << name << ": " << answer.error().message();
      std::int32_t gaps = 0;
      for (std::size_t i = 0; i < form.size(); ++i) {
        EXPECT_TRUE(form[i] == -1 || answer->ids[i] == form[i]) << name;
        gaps += form[i] == -1 ? 1 : 0;
        EXPECT_EQ(answer->commit_step[i] == -1, form[i] != -1) << name;
      }
      EXPECT_EQ(answer->stats.committed_tokens, gaps) << name;
      EXPECT_EQ(answer->finish, FinishReason::kStop);
      ASSERT_EQ(answer->slots.size(), 3u);
      const auto& found = answer->slots;
      EXPECT_EQ(answer->text, "Ben has" + found[0] + " pens. Ann has" + found[1] + " more." + found[2]) << name;
      ++ended;
    };
    std::vector<ScheduledRequest> requests;
    requests.push_back(std::move(one));
    ASSERT_TRUE(all->submit(std::move(requests)));
  }
  while (all->step()) {
  }
  EXPECT_EQ(ended, 12);
}

TEST_F(FormTest, FormsThatCannotBeFilledAreRefused) {
  const auto all = scheduler(1);
  const std::vector<std::int32_t> form = form_of(model);
  const auto refused = [&](const OptionMap& options, const std::vector<std::int32_t>& ids,
                           const std::vector<std::int32_t>& suffix = {}) {
    ScheduledRequest one;
    one.prompt = *model.prompt_ids("", false);
    one.form = ids;
    one.suffix = suffix;
    one.options.length = static_cast<std::int32_t>(ids.size());
    one.options.stop = {options.contains("stop") ? "x" : ""};
    if (!options.contains("stop")) one.options.stop.clear();
    for (const auto& [key, value] : options) EXPECT_TRUE(key == "stop" || one.options.set(key, to_text(value)));
    std::vector<ScheduledRequest> requests;
    requests.push_back(std::move(one));
    return !all->submit(std::move(requests));
  };
  EXPECT_FALSE(refused({}, form));
  EXPECT_TRUE(refused({{"algorithm", "revision"}}, form));
  EXPECT_TRUE(refused({{"length", std::int64_t{39}}}, form));
  EXPECT_TRUE(refused({{"defer_eos", true}}, form));
  EXPECT_TRUE(refused({{"stop", true}}, form));
  EXPECT_TRUE(refused({}, form, {5}));
  EXPECT_TRUE(refused({}, {1, 2, 3})) << "no gap";
  EXPECT_TRUE(refused({}, {1, -1, -2}));
  EXPECT_TRUE(refused({}, {1, -1, 1 << 20}));
}

}  // namespace
}  // namespace dllm
