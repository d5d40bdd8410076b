// Achieved bandwidth against figures measured with an independent public simulator, Ramulator 2.1, and against closed
// forms.
#include <gtest/gtest.h>

#include "npu_core/dram/closed_form.h"
#include "npu_core/dram/streams.h"

namespace dllm::npu::dram {
namespace {

MemoryConfig one_channel(const std::string& standard, const std::string& mapping = "mop4clxor") {
  auto loaded = load_standard(standard);
  EXPECT_TRUE(loaded) << loaded.error().message();
  MemoryConfig config;
  config.standard = *loaded;
  config.mapping = mapping;
  return config;
}

MemorySystem make_memory(const MemoryConfig& config) {
  auto memory = MemorySystem::create(config, config.standard.tick_fs());
  EXPECT_TRUE(memory) << memory.error().message();
  return *std::move(memory);
}

/// GB/s per pseudo-channel of a saturating stream of single bursts.
double measure(const MemoryConfig& config, Pattern pattern, double writes, MemorySystem* keep = nullptr) {
  MemorySystem memory = make_memory(config);
  StreamSpec spec;
  spec.pattern = pattern;
  spec.write_fraction = writes;
  spec.request_bytes = static_cast<std::uint64_t>(config.standard.burst_bytes);
  spec.requests = 60000;
  const auto result = run_stream(memory, spec);
  EXPECT_TRUE(result) << result.error().message();
  if (keep != nullptr) *keep = std::move(memory);
  return result->gbps / config.standard.pseudochannels;
}

struct Reference {
  const char* standard;
  const char* mapping;
  double sequential_read, sequential_write, random_read, random_write, mix;
};

TEST(Bandwidth, WithinThreePercentOfTheReferenceFigures) {
  const Reference references[] = {
      {"hbm2-2000", "mop4clxor", 14.32, 14.16, 4.82, 4.82, 11.92},
      {"hbm2-2000", "robaracoch", 12.87, 13.06, 4.82, 4.82, 11.90},
      {"hbm2e-3200", "mop4clxor", 22.46, 22.27, 6.47, 6.37, 17.03},
      {"hbm2e-3200", "robaracoch", 17.65, 18.14, 6.48, 6.38, 16.83},
      {"hbm3-6400", "mop4clxor", 22.56, 22.87, 7.49, 7.56, 17.32},
      {"hbm3-6400", "robaracoch", 12.97, 19.31, 7.50, 7.57, 14.20},
  };
  for (const Reference& r : references) {
    const MemoryConfig config = one_channel(r.standard, r.mapping);
    const auto check = [&](const char* what, double reference, Pattern pattern, double writes) {
      EXPECT_NEAR(measure(config, pattern, writes), reference, 0.03 * reference)
          << r.standard << " " << r.mapping << " " << what;
    };
    check("sequential read", r.sequential_read, Pattern::kSequential, 0);
    check("sequential write", r.sequential_write, Pattern::kSequential, 1);
    check("random read", r.random_read, Pattern::kRandom, 0);
    check("random write", r.random_write, Pattern::kRandom, 1);
    check("2:1 mix", r.mix, Pattern::kSequential, 1.0 / 3);
  }
}

TEST(Bandwidth, WithoutRefreshTheBusIsFull) {
  MemoryConfig config = one_channel("hbm2-2000");
  config.refresh = RefreshMode::kNone;
  EXPECT_GT(measure(config, Pattern::kSequential, 0), 0.995 * config.standard.peak_gbps());
}

TEST(Bandwidth, RandomAccessMeetsTheRowBusBound) {
  MemoryConfig config = one_channel("hbm2-2000");
  config.refresh = RefreshMode::kNone;
  const double bound = closed_form(config).random_gbps;
  EXPECT_NEAR(bound, 5.333, 0.001);
  EXPECT_NEAR(measure(config, Pattern::kRandom, 0), bound, 0.005 * bound);
  // A channel with one pseudo-channel has the row bus to itself; then tFAW binds.
  config.standard.pseudochannels = 1;
  const double alone = closed_form(config).random_gbps;
  EXPECT_NEAR(alone, 32 / 4.0, 0.001);  // tRRD_S = 4 clocks of 1 ns, just above tFAW / 4
  EXPECT_NEAR(measure(config, Pattern::kRandom, 0), alone, 0.06 * alone);
}

TEST(Bandwidth, OneBankGroupAndOneBank) {
  MemoryConfig config = one_channel("hbm2-2000", "robaracoch");
  config.refresh = RefreshMode::kNone;
  config.standard.pseudochannels = 1;
  config.standard.bank_groups = 1;
  EXPECT_NEAR(measure(config, Pattern::kSequential, 0), closed_form(config).one_group_gbps, 0.02 * 8.0);
  // A new row of the same bank each time: the stride of a whole row over a single bank.
  config.standard.banks_per_group = 1;
  MemorySystem memory = make_memory(config);
  StreamSpec spec;
  spec.pattern = Pattern::kStrided;
  spec.stride = 1024;
  spec.request_bytes = 32;
  spec.requests = 5000;
  const double expected = closed_form(config).one_bank_gbps;
  EXPECT_NEAR(expected, 32 / 48.0, 1e-9);
  EXPECT_NEAR(run_stream(memory, spec)->gbps, expected, 0.01 * expected);
}

TEST(Bandwidth, RefreshLossIsExplained) {
  for (const char* name : {"hbm2-2000", "hbm2e-3200", "hbm3-6400", "lpddr5x-8533"}) {
    MemoryConfig config = one_channel(name);
    MemorySystem memory = make_memory(config);
    measure(config, Pattern::kSequential, 0, &memory);
    const ClosedForm form = closed_form(config);
    const PseudochannelStats stats = memory.stats(0, 0);
    const double loss = static_cast<double>(stats.time.refresh) / static_cast<double>(stats.time.total());
    EXPECT_GT(stats.refreshes_all, 0u) << name;
    EXPECT_GE(loss, 0.97 * form.refresh_loss) << name;  // the run ends somewhere within an interval
    EXPECT_LE(loss, 1.1 * form.refresh_loss_with_restart) << name;
    config.refresh = RefreshMode::kPerBank;
    measure(config, Pattern::kSequential, 0, &memory);
    EXPECT_GT(memory.stats(0, 0).refreshes_bank, 10u) << name;
  }
}

TEST(Bandwidth, PerBankRefreshCostsAStreamLess) {
  MemoryConfig config = one_channel("hbm3-6400");
  const double all = measure(config, Pattern::kSequential, 0);
  config.refresh = RefreshMode::kPerBank;
  EXPECT_GT(measure(config, Pattern::kSequential, 0), all);
}

}  // namespace
}  // namespace dllm::npu::dram
