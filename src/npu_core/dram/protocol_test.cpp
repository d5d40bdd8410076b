// Every command that the controller issues is checked by an independent implementation of the standard.
#include "npu_core/dram/protocol_checker.h"

#include <gtest/gtest.h>

#include <random>

#include "npu_core/dram/streams.h"

namespace dllm::npu::dram {
namespace {

MemoryConfig protocol_config(const std::string& standard) {
  MemoryConfig config;
  config.standard = *load_standard(standard);
  return config;
}

std::vector<CommandRecord> random_traffic(const MemoryConfig& config, std::uint64_t seed, int requests) {
  auto memory = MemorySystem::create(config, 1000000, true);
  EXPECT_TRUE(memory) << memory.error().message();
  std::mt19937_64 random(seed);
  std::vector<TransferId> flight;
  ClientCycle now = 0;
  std::uint64_t next = 0;
  for (int i = 0; i < requests; ++i) {
    now += static_cast<ClientCycle>(random() % 4 == 0 ? random() % 400 : random() % 4);
    const bool jump = random() % 3 == 0;
    const std::uint64_t bytes = 1 + random() % 700;
    if (jump) next = random() % (memory->bytes() >> (random() % 20));
    if (next + bytes > memory->bytes()) next = 0;
    auto id = memory->submit(next, bytes, random() % 3 == 0 ? Access::kWrite : Access::kRead, now);
    if (!id) continue;  // a wait ran ahead of the clock
    next += bytes;
    flight.push_back(*id);
    if (random() % 20 == 0) {
      now = std::max(now, memory->wait(flight.back()));
      flight.pop_back();
    }
  }
  for (const TransferId id : flight) memory->wait(id);
  return memory->trace();
}

TEST(Protocol, RandomTrafficUnderEveryPolicy) {
  std::uint64_t seed = 1;
  for (const char* standard : {"hbm2-2000", "hbm2e-3200", "hbm3-6400", "lpddr5x-8533"})
    for (const RowPolicy policy : {RowPolicy::kOpen, RowPolicy::kClosed, RowPolicy::kTimeout})
      for (const RefreshMode refresh : {RefreshMode::kNone, RefreshMode::kAllBank, RefreshMode::kPerBank}) {
        MemoryConfig config = protocol_config(standard);
        config.row_policy = policy;
        config.refresh = refresh;
        config.channels = 2;
        config.refresh_stagger = seed % 2 == 0;
        config.mapping = seed % 3 == 0 ? "bankfirst" : seed % 3 == 1 ? "mop4clxor" : "robaracoch";
        config.hit_cap = seed % 2 == 0 ? 2 : 32;
        const auto trace = random_traffic(config, seed++, 800);
        EXPECT_GT(trace.size(), 1000u);
        const auto faults = check_protocol(trace, config);
        EXPECT_TRUE(faults.empty()) << standard << " policy " << static_cast<int>(policy) << " refresh "
                                    << static_cast<int>(refresh) << ": " << faults.front();
      }
}

TEST(Protocol, SaturatingStreams) {
  for (const char* standard : {"hbm2-2000", "hbm2e-3200", "hbm3-6400", "lpddr5x-8533"})
    for (const Pattern pattern : {Pattern::kSequential, Pattern::kRandom})
      for (const double writes : {0.0, 1.0, 0.33}) {
        const MemoryConfig config = protocol_config(standard);
        auto memory = MemorySystem::create(config, 1000000, true);
        StreamSpec spec;
        spec.pattern = pattern;
        spec.write_fraction = writes;
        spec.requests = 2000;
        ASSERT_TRUE(run_stream(*memory, spec));
        const auto faults = check_protocol(memory->trace(), config);
        EXPECT_TRUE(faults.empty()) << standard << ": " << faults.front();
      }
}

/// Tests the checker: it must find a command moved one clock earlier than the controller issued it, if the command was
/// bound by a constraint rather than by an arrival. In a saturated random stream nearly all are.
TEST(Protocol, TheCheckerFindsCommandsThatComeTooEarly) {
  const MemoryConfig config = protocol_config("hbm2-2000");
  auto memory = MemorySystem::create(config, 1000000, true);
  StreamSpec spec;
  spec.pattern = Pattern::kRandom;
  spec.requests = 300;
  ASSERT_TRUE(run_stream(*memory, spec));
  const std::vector<CommandRecord> trace = memory->trace();
  ASSERT_TRUE(check_protocol(trace, config).empty());
  int activations = 0, found = 0;
  for (std::size_t i = trace.size() / 2; i < trace.size() / 2 + 200 && i < trace.size(); ++i) {
    if (trace[i].command != Command::kActivate) continue;
    std::vector<CommandRecord> changed = trace;
    changed[i].at -= 3;
    ++activations;
    found += check_protocol(changed, config).empty() ? 0 : 1;
  }
  EXPECT_GT(activations, 20);
  EXPECT_GE(found, activations * 9 / 10);
}

TEST(Protocol, TheCheckerFindsWrongStatesAndMissingRefreshes) {
  MemoryConfig config = protocol_config("hbm2-2000");
  const CommandRecord act{100, Command::kActivate, 0, 0, 3, 7, -1};
  const auto faults = [&](std::vector<CommandRecord> trace) { return check_protocol(trace, config).size(); };
  EXPECT_EQ(faults({act, {114, Command::kRead, 0, 0, 3, 7, 0}}), 0u);
  EXPECT_GT(faults({act, {113, Command::kRead, 0, 0, 3, 7, 0}}), 0u);         // tRCD
  EXPECT_GT(faults({act, {114, Command::kRead, 0, 0, 3, 8, 0}}), 0u);         // row
  EXPECT_GT(faults({act, {114, Command::kRead, 0, 0, 4, 7, 0}}), 0u);         // bank
  EXPECT_GT(faults({act, {148, Command::kActivate, 0, 0, 3, 9, -1}}), 0u);    // open
  EXPECT_GT(faults({act, {133, Command::kPrecharge, 0, 0, 3, -1, -1}}), 0u);  // tRAS
  EXPECT_EQ(faults({act, {134, Command::kPrecharge, 0, 0, 3, -1, -1}}), 0u);
  EXPECT_GT(faults({act, {101, Command::kActivate, 0, 1, 3, 7, -1}}), 0u);  // row bus
  EXPECT_GT(faults({act, {20000, Command::kRead, 0, 0, 3, 7, 0}}), 0u);     // refresh
  EXPECT_GT(faults({act, {114, Command::kRead, 0, 0, 3, 7, 0}, {115, Command::kRead, 0, 0, 3, 7, 1}}), 0u);
}

}  // namespace
}  // namespace dllm::npu::dram
