// Requests that start from K/V of earlier ones answer what they answer alone, bit for bit: block-causal and
// autoregressive models, models of several modes, and models that refine canvases.
#include <gtest/gtest.h>

#include <algorithm>

#include "dllm/scheduler.h"
#include "golden_model.h"

namespace dllm {
namespace {

using Prompt = std::vector<std::int32_t>;

struct Asked {
  Prompt prompt;
  std::vector<std::pair<const char*, const char*>> options;
};

/// A conversation: each prompt continues the one before it.
std::vector<Asked> conversation(const std::vector<std::pair<const char*, const char*>>& options) {
  std::vector<Asked> all;
  Prompt prompt;
  for (int turn = 0; turn < 4; ++turn) {
    for (int i = 0; i < 37 + 11 * turn; ++i) prompt.push_back(97 + (i * 7 + turn * 3) % 26);
    all.push_back({prompt, options});
  }
  all.push_back(all[2]);  // a prompt that is known whole
  return all;
}

class PrefixReuse : public ::testing::TestWithParam<const char*> {
 protected:
  PrefixReuse()
      : golden_(GetParam(),
                [](test::HfCheckpoint& c) {
                  auto& text = c.config.contains("text_config") ? c.config["text_config"] : c.config;
                  text["max_position_embeddings"] = 512;
                }),
        model_(load("")) {}

  LanguageModel load(const std::string& cache_type) const {
    LoadOptions options;
    options.threads = 2;
    options.cache_type = cache_type;
    return *LanguageModel::load(golden_.path(), options);
  }
  static GenerateOptions options(const Asked& asked) {
    GenerateOptions options;
    options.length = 24;
    for (const auto& [key, value] : asked.options) {
      const auto set = options.set(key, value);
      EXPECT_TRUE(set) << key << ": " << set.error().message();
    }
    return options;
  }
  static void expect_same(const Generation& ours, const Generation& alone) {
    EXPECT_EQ(ours.ids, alone.ids);
    EXPECT_EQ(ours.confidence, alone.confidence);
    EXPECT_EQ(ours.commit_step, alone.commit_step);
    EXPECT_EQ(ours.stats.nfe, alone.stats.nfe);
    EXPECT_EQ(ours.stats.rows_scored, alone.stats.rows_scored);
    EXPECT_LE(ours.stats.rows_forwarded + ours.stats.cached_tokens, alone.stats.rows_forwarded + 1)
        << "one row of a prompt that is known whole is computed again";
  }
  /// The answers to requests given one after another, or all at once.
  static std::vector<Generation> answers(Scheduler& scheduler, const std::vector<Asked>& asked, bool at_once) {
    std::vector<Generation> all(asked.size());
    for (std::size_t i = 0; i < asked.size(); ++i) {
      ScheduledRequest one;
      one.prompt = asked[i].prompt;
      one.options = options(asked[i]);
      one.on_done = [&all, i](Expected<Generation> answer) {
        ASSERT_TRUE(answer) << answer.error().message();
        all[i] = *std::move(answer);
      };
      std::vector<ScheduledRequest> list;
      list.push_back(std::move(one));
      const auto submitted = scheduler.submit(std::move(list));
      EXPECT_TRUE(submitted) << (submitted ? "" : submitted.error().message());
      while (!at_once && scheduler.step()) {
      }
    }
    while (scheduler.step()) {
    }
    return all;
  }
  bool refines() const { return std::string(GetParam()) == "diffusion-gemma"; }
  bool several_modes() const { return std::string(GetParam()) == "nemotron"; }
  std::vector<std::vector<std::pair<const char*, const char*>>> methods() const {
    if (several_modes())
      return {{{"mode", "ar"}},
              {{"mode", "self-speculation"}},
              {{"mode", "diffusion"}},
              {{"mode", "diffusion"}, {"algorithm", "s2d2"}, {"check_cost", "0"}, {"threshold", "2"}},
              {{"mode", "ar"}, {"temperature", "0.9"}, {"seed", "3"}}};
    if (refines()) return {{}, {{"exact_length", "true"}}, {{"seed", "3"}}};
    std::vector<std::vector<std::pair<const char*, const char*>>> all = {{},
                                                                         {{"exact_length", "true"}},
                                                                         {{"temperature", "0.8"}, {"seed", "3"}},
                                                                         {{"exact_length", "true"}, {"settle", "1"}}};
    if (std::string(GetParam()) != "qwen3")
      all.push_back({{"algorithm", "s2d2"},
                     {"check_cost", "0"},
                     {"threshold", "2"},
                     {"exact_length", "true"},
                     {"temperature", "0.8"}});
    return all;
  }

  test::GoldenModel golden_;
  LanguageModel model_;
};

TEST_P(PrefixReuse, AnswersAreThoseOfRequestsAlone) {
  for (const char* type : {"f32", "bf16"}) {
    const LanguageModel model = load(type);
    for (const auto& method : methods())
      for (const bool at_once : {false, true}) {
        const auto scheduler = *Scheduler::create(model, {.parallel = 3, .queue = 64, .prefix_bytes = 64 << 20});
        const auto asked = conversation(method);
        const auto ours = answers(*scheduler, asked, at_once);
        for (std::size_t i = 0; i < asked.size(); ++i) {
          SCOPED_TRACE(::testing::Message() << type << ", request " << i << (at_once ? " of all at once" : ""));
          expect_same(ours[i], *model.generate_ids(asked[i].prompt, options(asked[i])));
          if (!at_once && i > 0) {
            const auto before = static_cast<std::int32_t>(asked[i - 1].prompt.size());
            EXPECT_GE(ours[i].stats.cached_tokens, i == 4 ? 0 : before - 16 - 8) << "all whole pieces";
          }
        }
        const SchedulerCounters counts = scheduler->counters();
        EXPECT_EQ(counts.prefix_hits + counts.prefix_misses, asked.size());
        EXPECT_GE(counts.prefix_hits, at_once ? 2U : 4U);
        EXPECT_GT(counts.prefix_bytes, 0);
      }
  }
}

TEST_P(PrefixReuse, FinishedAnswersAreKeptToo) {
  if (refines()) GTEST_SKIP() << "nothing reads the last canvas as context";
  const auto scheduler = *Scheduler::create(model_, {.parallel = 1, .queue = 64, .prefix_bytes = 64 << 20});
  const std::vector<std::pair<const char*, const char*>> whole = {{"length", "64"}, {"exact_length", "true"}};
  std::vector<Asked> asked = {{conversation(whole).front().prompt, whole}};
  const Generation first = answers(*scheduler, asked, false).front();
  Prompt& next = asked.front().prompt;
  const auto before = static_cast<std::int32_t>(next.size());
  next.insert(next.end(), first.ids.begin(), first.ids.end());
  next.insert(next.end(), {97, 98, 99});
  const Generation second = answers(*scheduler, asked, false).front();
  EXPECT_GE(second.stats.cached_tokens, before + 64 - 16 - 16) << "of the answer too";
  EXPECT_EQ(second.ids, model_.generate_ids(next, options(asked.front()))->ids);
}

// The next canvas starts from the rows that the one before it has left.
TEST_P(PrefixReuse, AnswersThatGoOnAfterTheirCanvas) {
  for (const auto& method : methods())
    for (const std::size_t turn : {std::size_t{0}, std::size_t{1}}) {
      SCOPED_TRACE(::testing::Message() << turn << " of method " << (method.empty() ? "" : method.front().second));
      const Asked asked = conversation(method)[turn];
      GenerateOptions given = options(asked);
      given.length = 16;
      given.max_tokens = 56;
      const auto whole = model_.generate_ids(asked.prompt, given);
      ASSERT_TRUE(whole) << whole.error().message();
      for (const std::int32_t bound : {5, 16, 17, 40}) {
        given.max_tokens = bound;
        const auto cut = model_.generate_ids(asked.prompt, given);
        ASSERT_TRUE(cut) << cut.error().message();
        const std::int32_t tokens = std::min(whole->stats.answer_tokens, bound);
        EXPECT_TRUE(std::equal(cut->ids.begin(), cut->ids.begin() + tokens, whole->ids.begin())) << "bound " << bound;
        EXPECT_EQ(cut->stats.answer_tokens, tokens);
      }
      // Each canvas is an answer to all that is before it.
      Prompt prompt = asked.prompt;
      given.max_tokens.reset();
      for (std::size_t at = 0; at < static_cast<std::size_t>(whole->stats.answer_tokens); at += 16) {
        const auto next = model_.generate_ids(prompt, given);
        ASSERT_TRUE(next) << next.error().message();
        const auto count = std::min(next->stats.answer_tokens, static_cast<std::int32_t>(whole->ids.size() - at));
        for (std::int32_t i = 0; i < count; ++i)
          EXPECT_EQ(whole->ids[at + static_cast<std::size_t>(i)], next->ids[static_cast<std::size_t>(i)]) << at + i;
        prompt.insert(prompt.end(), next->ids.begin(), next->ids.end());
      }
      if (whole->ids.size() > 16) {
        EXPECT_LT(whole->stats.rows_forwarded, 2 * (static_cast<std::int64_t>(asked.prompt.size()) +
                                                    16 * static_cast<std::int64_t>(whole->stats.nfe)))
            << "the prompt is not computed again for each canvas";
      }
    }
}

TEST_P(PrefixReuse, NothingIsKeptWithoutABudget) {
  const auto scheduler = *Scheduler::create(model_, {.parallel = 2, .queue = 64, .prefix_bytes = 0});
  for (const Generation& answer : answers(*scheduler, conversation({}), false))
    EXPECT_EQ(answer.stats.cached_tokens, 0);
  const SchedulerCounters counts = scheduler->counters();
  EXPECT_EQ(counts.prefix_hits + counts.prefix_misses, 0U);
  EXPECT_EQ(counts.prefix_bytes, 0);
  EXPECT_FALSE(Scheduler::create(model_, {.parallel = 1, .queue = 1, .prefix_bytes = -1}));
}

TEST_P(PrefixReuse, ASmallBudgetIsKept) {
  const auto asked = conversation({});
  const auto probe = *Scheduler::create(model_, {.parallel = 1, .queue = 64, .prefix_bytes = 64 << 20});
  answers(*probe, asked, false);
  const std::int64_t budget = probe->counters().prefix_bytes / 4;
  const auto scheduler = *Scheduler::create(model_, {.parallel = 3, .queue = 64, .prefix_bytes = budget});
  auto many = asked;
  for (int start = 0; start < 6; ++start) {
    many.push_back(asked[1]);
    many.back().prompt[0] = 97 + start;
  }
  const auto ours = answers(*scheduler, many, true);
  for (std::size_t i = 0; i < many.size(); ++i)
    expect_same(ours[i], *model_.generate_ids(many[i].prompt, options(many[i])));
  EXPECT_LE(scheduler->counters().prefix_bytes, budget);
  EXPECT_GT(scheduler->counters().evicted_tokens, 0U);
}

/// A cancelled request leaves what it had finished, and no more.
TEST_P(PrefixReuse, CancelledRequestsLeaveFinalRowsOnly) {
  const auto asked = conversation({});
  for (int passes = 1; passes < 8; ++passes) {
    const auto scheduler = *Scheduler::create(model_, {.parallel = 2, .queue = 64, .prefix_bytes = 64 << 20});
    ScheduledRequest one;
    one.prompt = asked[1].prompt;
    one.options = options(asked[1]);
    one.detail = StepDetail::kText;
    one.on_step = [passes](const StepEvent& event) { return event.nfe < passes; };
    std::vector<ScheduledRequest> list;
    list.push_back(std::move(one));
    ASSERT_TRUE(scheduler->submit(std::move(list)));
    while (scheduler->step()) {
    }
    // The next prompt begins with the cancelled one's tokens and goes on differently from its answer.
    const auto ours = answers(*scheduler, {asked[2]}, false);
    expect_same(ours[0], *model_.generate_ids(asked[2].prompt, options(asked[2])));
    EXPECT_GT(ours[0].stats.cached_tokens, 0);
  }
}

/// What has a second cache, or forwards all rows in any case, neither reads nor keeps rows.
TEST_P(PrefixReuse, OtherMethodsAreLeftAlone) {
  if (several_modes() || refines()) GTEST_SKIP() << "one method per mode";
  for (const char* key : {"cache", "cfg_scale"}) {
    const bool guided = std::string(key) == "cfg_scale";
    if (guided && model_.autoregressive()) continue;
    const auto scheduler = *Scheduler::create(model_, {.parallel = 1, .queue = 64, .prefix_bytes = 64 << 20});
    const auto asked = conversation({{key, guided ? "0.5" : "none"}});
    const auto ours = answers(*scheduler, asked, false);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      expect_same(ours[i], *model_.generate_ids(asked[i].prompt, options(asked[i])));
      EXPECT_EQ(ours[i].stats.cached_tokens, 0);
    }
    EXPECT_EQ(scheduler->counters().prefix_bytes, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PrefixReuse,
                         ::testing::Values("sdar", "llada2", "qwen3", "nemotron", "diffusion-gemma"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::erase(name, '-');
                           return name;
                         });

/// Rows of bidirectional models depend on the whole canvas: none are shared.
TEST(PrefixReuseOf, BidirectionalModelsHasNoRows) {
  const LanguageModel model = *LanguageModel::load("");
  const auto scheduler = *Scheduler::create(model, {.parallel = 1, .queue = 64, .prefix_bytes = 64 << 20});
  for (int i = 0; i < 2; ++i) {
    ScheduledRequest one;
    one.prompt = *model.apply_template({{"user", "3 + 4 ="}});
    one.options.cache.name = "prefix";
    one.on_done = [](const Expected<Generation>& answer) {
      ASSERT_TRUE(answer);
      EXPECT_EQ(answer->stats.cached_tokens, 0);
    };
    std::vector<ScheduledRequest> list;
    list.push_back(std::move(one));
    ASSERT_TRUE(scheduler->submit(std::move(list)));
    while (scheduler->step()) {
    }
  }
  EXPECT_EQ(scheduler->counters().prefix_hits + scheduler->counters().prefix_misses, 0U);
}

}  // namespace
}  // namespace dllm
