// Passes in a row on a Vulkan device: the CPU's tokens, confidences, steps and counts for any number of them, and no
// pass that had to be undone unless another one came than was foreseen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/unrolling.h"
#include "cpu/cpu_backend.h"
#include "decode/testing/run_method.h"
#include "dllm/model.h"
#include "random_model.h"
#include "vulkan/vulkan_backend.h"

namespace dllm {
namespace {

using test::MethodRun;
using test::RandomModel;

/// What of an answer may not depend on the backend.
struct Told {
  std::vector<TokenId> tokens{};
  std::vector<std::vector<std::pair<Position, TokenId>>> commits{};  ///< of each step
  std::vector<double> confidences{};
  std::int64_t passes = 0, rows = 0, forced = 0;
  std::int64_t overruled = 0;  ///< rows whose best token is the mask
  std::optional<Position> stop{};
  friend bool operator==(const Told&, const Told&) = default;
};

/// An answer that is being made.
struct Answer {
  Answer(Backend& backend, const MethodRun& run, TokenId seed, std::unique_ptr<Decoder> decoder = nullptr)
      : cache(*backend.make_cache(run.prompt + run.grid.length)) {
    std::vector<TokenId> prompt;
    for (Position p = 0; p < run.prompt; ++p) prompt.push_back((p * 13 + seed * 29) % 70);
    Method method = test::method_of(run);
    if (decoder) method.decoder = std::move(decoder);
    loop = std::make_unique<Denoiser>(backend.desc(), Canvas(prompt, run.grid.length, *backend.desc().mask),
                                      std::move(method), run.options, *cache, nullptr);
  }

  /// False: it has ended.
  bool prepare(std::vector<SequenceStep>& batch) {
    const auto steps = loop->prepare();
    if (steps.empty()) return false;
    batch.insert(batch.end(), steps.begin(), steps.end());
    return true;
  }
  void absorb(const Scores& scores) {
    told.overruled += std::ranges::count(scores.rows, true, &RowScore::overruled);
    const auto step = loop->absorb({&scores, 1});
    ASSERT_TRUE(step) << step.error().message();
    told.commits.emplace_back();
    for (const Edit& edit : step->edits) {
      told.commits.back().emplace_back(edit.position, edit.token);
      told.confidences.push_back(edit.confidence);
    }
  }
  Told result() {
    for (Position p = 0; p < loop->canvas().size(); ++p) told.tokens.push_back(loop->canvas().token(p));
    told.passes = loop->counters().nfe;
    told.rows = loop->counters().rows_forwarded;
    told.forced = loop->counters().forced;
    told.stop = loop->stop_position();
    return told;
  }

  std::unique_ptr<KvCache> cache;
  std::unique_ptr<Denoiser> loop;
  Told told;
};

/// `joins`: before which pass each answer joins the batch. `calls`: how many passes were asked for.
std::vector<Told> answers(Backend& backend, const std::vector<MethodRun>& runs, const std::vector<int>& joins,
                          std::uint64_t* calls = nullptr) {
  std::vector<std::unique_ptr<Answer>> all(runs.size());
  std::vector<bool> ended(runs.size(), false);
  for (int pass = 0; pass < 200; ++pass) {
    std::vector<SequenceStep> batch;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (ended[i] || pass < joins[i]) continue;
      if (!all[i]) all[i] = std::make_unique<Answer>(backend, runs[i], static_cast<TokenId>(i + 1));
      if (all[i]->prepare(batch))
        places.push_back(i);
      else
        ended[i] = true;
    }
    if (batch.empty() && std::ranges::count(ended, false) == 0) break;
    if (batch.empty()) continue;
    const auto scores = backend.forward(batch);
    if (calls != nullptr) ++*calls;
    EXPECT_TRUE(scores) << scores.error().message();
    if (!scores) return {};
    for (std::size_t i = 0; i < places.size(); ++i) all[places[i]]->absorb((*scores)[i]);
  }
  std::vector<Told> told;
  for (const auto& answer : all) told.push_back(answer->result());
  return told;
}

Told answer(Backend& backend, const MethodRun& run) { return answers(backend, {run}, {0}).front(); }

/// Both backends of a random model; `there` is null where the device runs no passes in a row.
struct Both {
  Both(const RandomModel& spec, std::int32_t passes, std::optional<std::uint32_t> mask = std::nullopt) {
    ModelSource source = test::random_source(spec);
    if (mask) source.metadata.set("tokenizer.ggml.mask_token_id", MetaValue::u32(*mask));
    const std::shared_ptr<const Model> model = *Model::load(source);
    const auto graph = [model](StepShape shape) { return model->build(shape); };
    CpuOptions options;
    options.threads = 1;
    options.arithmetic = CpuArithmetic::kExact;
    options.attention = CpuAttention::kF32;
    here = *CpuBackend::create(model->desc(), graph, model->weights(), options);
    VulkanOptions vulkan;
    vulkan.threads = 1;
    vulkan.unroll = passes;
    vulkan.validate = true;
    auto made = make_vulkan_backend(model->desc(), graph, model->weights(), vulkan);
    if (made) {
      there = *std::move(made);
      return;
    }
    lacks = made.error().message();
    EXPECT_TRUE(made.error().code == ErrorCode::kUnsupported && made.error().where == "--unroll") << lacks;
  }
  ~Both() { EXPECT_EQ(there ? there->messages() : "", ""); }

  std::unique_ptr<CpuBackend> here;
  std::unique_ptr<VulkanBackend> there;
  std::string lacks;
};

class VulkanUnroll : public testing::Test {
 public:
  static MethodRun run_of(const std::string& decoder, double value, const std::string& cache = "dual") {
    MethodRun run;
    run.decoder = decoder;
    run.cache = cache;
    if (decoder == "threshold")
      run.config["threshold"] = value;
    else
      run.config["steps"] = static_cast<std::int64_t>(value);
    return run;
  }

 protected:
  void SetUp() override {
    if (!has_vulkan()) GTEST_SKIP() << vulkan_missing();
    const auto devices = vulkan_devices();
    if (!devices || devices->empty()) GTEST_SKIP() << "this machine has no Vulkan device";
  }

  static std::vector<MethodRun> runs() {
    return {
        run_of("threshold", 0.02),           run_of("threshold", 0.03, "prefix"), run_of("threshold", 1.5),
        run_of("threshold", 0.025, "none"),  run_of("low-confidence", 24),        run_of("low-confidence", 9, "prefix"),
        run_of("low-confidence", 15, "none")};
  }

  static void expect_the_same(const RandomModel& spec, std::int32_t passes) {
    SCOPED_TRACE(spec.architecture + ", seed " + std::to_string(spec.seed) + ", passes " + std::to_string(passes));
    Both both(spec, passes);
    if (!both.there) GTEST_SKIP() << both.lacks;
    std::int64_t recordings = 0;
    for (const MethodRun& run : runs()) {
      EXPECT_EQ(answer(*both.there, run), answer(*both.here, run)) << run.decoder << " " << run.cache;
      if (recordings == 0) recordings = both.there->recordings();
    }
    EXPECT_EQ(both.there->recordings(), recordings) << "one recording serves all";
    EXPECT_EQ(both.there->passes_undone(), 0);
    EXPECT_GT(both.there->passes_ahead(), 10);
  }
};

TEST_F(VulkanUnroll, AnswersAreThoseOfOnePassAfterTheOther) {
  expect_the_same({.architecture = "llada-moe", .type = TensorType::kQ8_0, .seed = 2}, 5);
}

/// A row predicts the next position, and the head has several chunks.
TEST_F(VulkanUnroll, OfAShiftedModelWithALargerVocabulary) {
  expect_the_same({.architecture = "dream", .kv_heads = 2, .vocab = 2500, .type = TensorType::kQ8_0, .seed = 3}, 16);
}

void expect_the_same_ends(Both& both, const MethodRun& plain) {
  const Told whole = answer(*both.here, plain);
  for (Position at = 0; at < plain.grid.length; at += 4) {
    MethodRun run = plain;
    run.options.exact_length = false;
    run.options.stop_ids = {whole.tokens[static_cast<std::size_t>(plain.prompt + at)]};
    EXPECT_EQ(answer(*both.there, run), answer(*both.here, run)) << plain.decoder << " stops at " << at;
  }
}

void expect_joins(Both& both, const std::vector<MethodRun>& some) {
  for (const std::vector<int>& joins : {std::vector{0, 0, 0}, std::vector{0, 3, 6}}) {
    const std::uint64_t before = both.there->passes(), ahead = both.there->passes_ahead();
    std::uint64_t calls = 0;
    EXPECT_EQ(answers(*both.there, some, joins, &calls), answers(*both.here, some, joins));
    // A late one runs alone until those before it have used what ran ahead: three passes at most, each time.
    const std::uint64_t most = calls + (joins.back() == 0 ? 0 : 2 * 3);
    EXPECT_LE(both.there->passes() - before, most) << "answers of a batch share their passes";
    EXPECT_GT(both.there->passes_ahead(), ahead);
  }
}

/// This model predicts token 51 often: as the mask, it is never committed.
TEST_F(VulkanUnroll, AMaskThatIsPredicted) {
  Both both({.seed = 5}, 4, 51);
  if (!both.there) GTEST_SKIP() << both.lacks;
  for (const MethodRun& run : {run_of("threshold", 0.02), run_of("low-confidence", 24)}) {
    const Told expected = answer(*both.here, run);
    EXPECT_GT(expected.overruled, 10) << run.decoder;
    EXPECT_EQ(answer(*both.there, run), expected) << run.decoder;
  }
  EXPECT_GT(both.there->passes_ahead(), 0);
  EXPECT_EQ(both.there->passes_undone(), 0);
}

/// One backend, as Mesa compiles its shaders for each.
TEST_F(VulkanUnroll, StopTokensBatchesAndDraws) {
  Both both({.seed = 5}, 4);
  if (!both.there) GTEST_SKIP() << both.lacks;
  // Stop tokens end an answer where no mask is before them.
  for (const MethodRun& plain : {run_of("threshold", 0.02), run_of("low-confidence", 24)})
    expect_the_same_ends(both, plain);
  EXPECT_GT(both.there->passes_ahead(), 0);
  const MethodRun counted = run_of("low-confidence", 24);
  MethodRun longer = run_of("threshold", 0.02), later = counted;
  longer.prompt = later.prompt = 9;
  expect_joins(both, {counted, longer, run_of("threshold", 1.5)});
  expect_joins(both, {counted, later, counted});
  // Draws read every logit, and the rule knows nothing of them.
  const std::uint64_t before = both.there->passes_ahead();
  MethodRun drawn = run_of("threshold", 0.02);
  drawn.options.sampling.temperature = 0.7;
  EXPECT_EQ(answer(*both.there, drawn), answer(*both.here, drawn));
  EXPECT_EQ(both.there->passes_ahead(), before);
  EXPECT_EQ(both.there->passes_undone(), 0);
}

/// Says that all will be committed, and commits one after the other.
class Liar : public Decoder {
 public:
  std::vector<Edit> decode(const DecodeContext&, std::span<const Candidate> candidates) override {
    return {commit(candidates.back())};
  }
  std::optional<CommitRule> rule(const DecodeContext&, std::int32_t passes) const override {
    CommitRule rule;
    rule.counts.assign(static_cast<std::size_t>(passes), 2);
    return rule;
  }
};

/// The host has the last word: what was foreseen wrongly is undone, and nothing is foreseen after that.
void expect_the_undone(Both& both) {
  const MethodRun run = VulkanUnroll::run_of("threshold", 0.5);
  Told told[2];
  for (int i = 0; i < 2; ++i) {
    Backend& backend = i == 0 ? static_cast<Backend&>(*both.here) : *both.there;
    Answer made(backend, run, 1, std::make_unique<Liar>());
    for (std::vector<SequenceStep> batch; made.prepare(batch); batch.clear()) made.absorb((*backend.forward(batch))[0]);
    told[i] = made.result();
  }
  EXPECT_EQ(told[0], told[1]);
  EXPECT_EQ(both.there->passes_undone(), 1);
}

/// An answer that is left in the middle of passes in a row, and whose cache another one takes over.
void expect_the_copied(Both& both) {
  const MethodRun run = VulkanUnroll::run_of("low-confidence", 24);
  std::vector<RowScore> seen[2];
  for (int i = 0; i < 2; ++i) {
    Backend& backend = i == 0 ? static_cast<Backend&>(*both.here) : *both.there;
    Answer left(backend, run, 1);
    std::vector<SequenceStep> batch;
    for (int pass = 0; pass < 3 && left.prepare(batch); ++pass, batch.clear())
      left.absorb((*backend.forward(batch))[0]);
    const Position size = run.prompt + run.grid.length;
    const auto copy = *backend.make_cache(size);
    copy->copy(*left.cache, {0, size}, 0);
    EXPECT_TRUE(copy->holds({0, size}));
    SequenceStep step{copy.get(), {}, {}, {}};
    step.plan.rows = {{size - 1, 3}};
    step.plan.visible = {{0, size}};
    step.plan.scored = {0};
    seen[i] = (*backend.forward({&step, 1}))[0].rows;
  }
  ASSERT_EQ(seen[0].size(), seen[1].size());
  EXPECT_EQ(seen[0][0].token, seen[1][0].token);
  EXPECT_EQ(seen[0][0].confidence, seen[1][0].confidence);
  EXPECT_EQ(both.there->passes_undone(), 2);
}

TEST_F(VulkanUnroll, PassesThatNobodyAsksForAreUndone) {
  Both both({.seed = 8}, 4);
  if (!both.there) GTEST_SKIP() << both.lacks;
  expect_the_undone(both);
  expect_the_copied(both);
}

/// More bytes of the device for so many scored rows than for 1,024.
std::int64_t growth(Backend& backend, const VulkanBackend& there, Position rows) {
  const auto cache = *backend.make_cache(rows);
  std::int64_t bytes[2] = {};
  for (const int i : {0, 1}) {
    SequenceStep step{cache.get(), {}, {}, {}};
    step.plan.visible = {{0, 32}};
    for (Position p = 0; p < (i == 0 ? 1024 : rows); ++p) {
      step.plan.rows.push_back({p, 3});
      step.plan.scored.push_back(p);
    }
    EXPECT_TRUE(backend.forward({&step, 1}));
    bytes[i] = there.device_bytes();
  }
  return bytes[1] - bytes[0];
}

/// A pass of more rows than a row of passes may have takes no room for the others.
TEST_F(VulkanUnroll, ManyRowsTakeTheRoomOfOnePass) {
  const RandomModel spec{.type = TensorType::kQ8_0, .seed = 8};
  Both one(spec, 1), both(spec, 16);
  if (!one.there || !both.there) GTEST_SKIP() << both.lacks;
  EXPECT_LT(growth(*both.there, *both.there, 1025) - growth(*one.there, *one.there, 1025), 200'000);
  const std::uint64_t before = both.there->passes_ahead();
  const MethodRun run = run_of("low-confidence", 24);
  EXPECT_EQ(answer(*both.there, run), answer(*both.here, run));
  EXPECT_GT(both.there->passes_ahead(), before);
}

}  // namespace
}  // namespace dllm
