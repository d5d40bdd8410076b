// Passes and answers of small models on the core of 8 lanes. CoreExecutor compares registers and memories with the
// functional machine after every program, and times; here scores and tokens are compared with the accuracy simulator.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "answer/answers.h"
#include "engine/resolve.h"
#include "npu_core/assembler/assembler.h"
#include "random_model.h"
#include "test/fault.h"

namespace dllm::rtl {
namespace {

std::shared_ptr<const Model> small_model() {
  static const std::shared_ptr<const Model> model = *Model::load(
      test::random_source({.width = 16, .layers = 2, .heads = 2, .kv_heads = 1, .ffn_width = 24, .vocab = 40}));
  return model;
}

std::unique_ptr<CoreAnswers> answers_of_small_model(MemoryTiming timing = {}, std::vector<npu::Override> memory = {}) {
  CoreShape shape = answer8();
  shape.overrides = std::move(memory);
  auto answers = CoreAnswers::create(small_model(), shape, timing);
  EXPECT_TRUE(answers.has_value()) << answers.error().message();
  return std::move(*answers);
}

/// A prompt with a block, then the block alone with the cache's contents: their logits.
Expected<std::vector<float>> two_passes(Backend& backend) {
  const auto cache = *backend.make_cache(12);
  std::vector<float> logits;
  for (const Position first : {0, 8}) {
    SequenceStep step;
    step.cache = cache.get();
    for (Position p = first; p < 12; ++p)
      step.plan.rows.push_back({p, static_cast<TokenId>((9 + 11 * p + first) % 40)});
    step.plan.visible = {{0, 12}};
    for (std::int32_t i = 12 - first - 4; i < 12 - first; ++i) step.plan.scored.push_back(i);
    step.request.logits = true;
    auto scores = backend.forward({&step, 1});
    if (!scores) return scores.error();
    logits.insert(logits.end(), scores->front().logits.begin(), scores->front().logits.end());
  }
  return logits;
}

void expect_equal_passes(MemoryTiming timing) {
  const auto answers = answers_of_small_model(timing);
  const auto core = two_passes(answers->on_core()), device = two_passes(answers->on_device());
  ASSERT_TRUE(core.has_value()) << core.error().message();
  ASSERT_TRUE(device.has_value()) << device.error().message();
  EXPECT_EQ(core->size(), 2u * 4 * 40);
  EXPECT_EQ(*core, *device);
  const CoreTotals& totals = answers->totals();
  EXPECT_EQ(totals.programs, 2u);
  EXPECT_GT(totals.result.values, 100u) << "the programs compute nothing";
  std::printf("%s", cycle_table(totals).c_str());
}

TEST(RtlAnswer, PassesWithIdealMemory) { expect_equal_passes({}); }
TEST(RtlAnswer, PassesWithSlowMemory) { expect_equal_passes({.latency = 60, .stall = 3}); }

/// Memory answers as the device's DRAM does, and the core moves a row per cycle (docs/design/rtl.md).
TEST(RtlAnswer, PassesWithDram) {
  struct Memory {
    const char* standard;
    double most;  ///< per cent of all cycles
  };
  for (const Memory& memory : {Memory{"lpddr5x-8533", 6}, Memory{"hbm2-2000", 7}}) {
    const auto answers =
        answers_of_small_model({.dram = true}, {{"memory.standard", memory.standard}, {"memory.stacks", "1"}});
    const auto logits = two_passes(answers->on_core());
    ASSERT_TRUE(logits.has_value()) << logits.error().message();
    std::printf("%s\n%s", memory.standard, cycle_table(answers->totals()).c_str());
    // Never faster than the simulator, whose bus is as wide as the memory.
    EXPECT_GT(transfers_apart(answers->totals()), 0) << memory.standard;
    EXPECT_LT(transfers_apart(answers->totals()), memory.most) << memory.standard;
  }
}

TEST(RtlAnswer, AnswersOfASmallModel) {
  struct Method {
    const char* decoder;
    const char* cache;
  };
  const auto answers = answers_of_small_model();
  const std::vector<TokenId> prompt = {3, 14, 15, 9, 26, 5};
  for (const Method& method : {Method{"low-confidence", "none"}, Method{"threshold", "prefix"}}) {
    GenerateOptions options;
    options.length = 8;
    options.block_length = 4;
    if (method.decoder == std::string("low-confidence")) options.decoder.options["steps"] = 4;
    options.decoder.name = method.decoder;
    options.cache.name = method.cache;
    const auto resolved = resolve_options(options, small_model()->desc());
    ASSERT_TRUE(resolved.has_value()) << resolved.error().message();
    const auto answer = answers->answer(prompt, *resolved);
    ASSERT_TRUE(answer.has_value()) << method.decoder << ": " << answer.error().message();
    EXPECT_TRUE(answer->equal()) << method.decoder;
    EXPECT_EQ(answer->core.ids.size(), 8u);
    EXPECT_GT(answer->core.stats.nfe, 2);
  }
  std::printf("%llu programs, %lld cycles, %.1f s\n", static_cast<unsigned long long>(answers->totals().programs),
              static_cast<long long>(answers->totals().result.cycles), answers->totals().seconds);
}

/// Faults in the sources (rtl/fault.svh): a lost sticky bit in adders; a loop with one more iteration.
TEST(RtlAnswer, AFaultEndsTheAnswer) {
  for (const int fault : {3, 11}) {
    const PlantedFault planted(fault);
    const auto logits = two_passes(answers_of_small_model()->on_core());
    ASSERT_FALSE(logits.has_value()) << fault;
    EXPECT_EQ(logits.error().code, ErrorCode::kMismatch) << logits.error().message();
  }
}

/// A fault of the hardware that shows in one place only, and what the error says of it.
struct OnePlace {
  const char* says;
  int fault;
  std::string text;
};
std::vector<OnePlace> places() {
  // 1 + 2^-8 + 2^-15 rounds to another BF16 if the sticky bit is lost: in f3, and in lane 0 of row 1.
  const std::string terms = "S_LI_FP f1, 1\nS_LI_FP f2, 0.003936767578125\n", sum = terms + "S_ADD_FP f3, f1, f2\n",
                    row = terms + "S_ST_FP f1, gp0, 0\nli gp1, 8\nS_MAP_V_FP gp0, gp0, 0\nV_ADD_VF gp1, gp0, f2, 0\n",
                    increment = "S_ADDI_INT gp1, gp1, 1\n";
  return {{"f3 is", 3, sum},
          {"FP word 3", 3, sum + "S_ST_FP f3, gp0, 3\nS_LI_FP f3, 0\n"},
          {"row 1 lane 0", 3, row},
          {"byte 0x40 of memory", 3,
           row + "li gp2, 7\nC_SET_CSR gp2, format_activation\nli gp2, 1\nC_SET_CSR gp2, store_v_rows\nli gp2, 64\n"
                 "C_SET_ADDR_REG a1, gp0, gp2\nH_STORE_V gp1, gp0, a1, 0, 0\nV_SUB_VV gp1, gp1, gp1, 0\n"},
          {"INT word 32", 8,
           "li gp2, 5\nS_ST_INT gp2, gp0, 0\nli gp3, 32\nli gp4, 16\nli gp5, 8\n"
           "V_SELECT_INT gp3, gp0, gp4, gp0, gp5\n"},
          {"cycles, not", 12, increment + increment + increment}};
}

TEST(RtlAnswer, EveryPlaceIsCompared) {
  const auto device = core_device(answer8());
  ASSERT_TRUE(device.has_value()) << device.error().message();
  for (const OnePlace& place : places())
    for (const bool faulty : {false, true}) {
      const auto core = *answer8().make(answer8(), device->device, device->config, {});
      npu::Machine host = *npu::Machine::create(device->config);
      host.state().reach_hbm(device->config.hbm_bytes);
      const auto program = npu::assemble(place.text, {.file = "place"});
      ASSERT_TRUE(program.has_value()) << program.error().message();
      const PlantedFault planted(faulty ? place.fault : 0);
      const auto ran = core->run(host, *program);
      EXPECT_EQ(ran.has_value(), !faulty) << place.says << (ran ? "" : ": " + ran.error().message());
      if (ran) continue;
      EXPECT_NE(ran.error().what.find(place.says), std::string::npos) << ran.error().message();
    }
}

/// Neither the core nor the machine starts a program with what another has left in registers.
TEST(RtlAnswer, RegistersStartAtZero) {
  const auto device = core_device(answer8());
  ASSERT_TRUE(device.has_value()) << device.error().message();
  const auto core = *answer8().make(answer8(), device->device, device->config, {});
  npu::Machine host = *npu::Machine::create(device->config);
  host.state().reach_hbm(device->config.hbm_bytes);
  const auto program =
      npu::assemble("S_ADDI_INT gp1, gp1, 1\nS_ST_FP f1, gp0, 4\nS_LI_FP f1, 1\n", {.file = "registers"});
  for (int run = 0; run < 2; ++run) {
    const auto ran = core->run(host, *program);
    EXPECT_TRUE(ran.has_value()) << ran.error().message();
  }
}

}  // namespace
}  // namespace dllm::rtl
