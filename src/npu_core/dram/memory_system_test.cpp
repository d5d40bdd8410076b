#include "npu_core/dram/memory_system.h"

#include <gtest/gtest.h>

#include "npu_core/dram/closed_form.h"
#include "npu_core/dram/streams.h"

namespace dllm::npu::dram {
namespace {

MemoryConfig config_for(const std::string& standard, int channels = 1) {
  MemoryConfig config;
  config.standard = *load_standard(standard);
  config.channels = channels;
  if (standard == "hbm2-dplena") config.refresh = RefreshMode::kNone;  // see the comment in its file
  return config;
}

MemorySystem make(const MemoryConfig& config, std::int64_t period_fs) {
  auto memory = MemorySystem::create(config, period_fs);
  EXPECT_TRUE(memory) << memory.error().message();
  return *std::move(memory);
}

TEST(MemorySystem, LatencyIsTheClosedForm) {
  for (const std::string& name : standard_names()) {
    const MemoryConfig config = config_for(name);
    MemorySystem memory = make(config, config.standard.tick_fs());
    const ClosedForm form = closed_form(config);
    const int burst = config.standard.burst_bytes;
    const auto ns = [&](ClientCycle cycles) { return config.standard.ticks_to_ns(static_cast<double>(cycles)); };
    EXPECT_DOUBLE_EQ(ns(memory.wait(*memory.submit(0, burst, Access::kRead, 0))), form.idle_read_ns) << name;
    // Another row of the same bank, after tRAS: conflict.
    const std::uint64_t other_row = memory.bytes() / 2;
    ASSERT_EQ(memory.map().locate(0).bank, memory.map().locate(other_row / static_cast<std::uint64_t>(burst)).bank);
    const ClientCycle late = 4 * config.standard.timing.rc;
    EXPECT_NEAR(ns(memory.wait(*memory.submit(other_row, burst, Access::kRead, late)) - late), form.conflict_read_ns,
                1e-9)
        << name;
    EXPECT_EQ(memory.stats(0, 0).row_misses, 1u);
    EXPECT_EQ(memory.stats(0, 0).row_conflicts, 1u);
  }
}

TEST(MemorySystem, ClockDomains) {
  const MemoryConfig config = config_for("hbm2e-3200");
  MemorySystem memory = make(config, 1000000);  // 1 GHz client, 1.6 GHz memory
  EXPECT_EQ(memory.tick_of(0), 0);
  EXPECT_EQ(memory.tick_of(1), 2);  // 1.6 ticks: the request is seen at the next edge
  EXPECT_EQ(memory.cycle_of(2), 2);
  EXPECT_EQ(memory.cycle_of(8), 5);
  // RCD 23 + CL 23 + BL 2 = 48 ticks of 0.625 ns = 30 ns
  EXPECT_EQ(memory.wait(*memory.submit(0, 32, Access::kRead, 0)), 30);
}

TEST(MemorySystem, ChannelsWorkInParallel) {
  const MemoryConfig one = config_for("hbm2e-3200", 1), many = config_for("hbm2e-3200", 16);
  MemorySystem small = make(one, 1000000), large = make(many, 1000000);
  const ClientCycle slow = small.wait(*small.submit(0, 1 << 20, Access::kRead, 0));
  const ClientCycle fast = large.wait(*large.submit(0, 1 << 20, Access::kRead, 0));
  EXPECT_NEAR(static_cast<double>(slow) / static_cast<double>(fast), 16, 2.0);
  EXPECT_EQ(large.stats(0, 0).reads + large.stats(0, 1).reads, (1u << 20) / 32 / 16);
}

TEST(MemorySystem, AnswersDoNotDependOnWhenTheyAreAskedFor) {
  const MemoryConfig config = config_for("hbm2-2000", 4);
  const auto run = [&](int style) {
    MemorySystem memory = make(config, 1000000);
    std::vector<TransferId> ids;
    for (int i = 0; i < 200; ++i)
      ids.push_back(memory.submit_unchecked(static_cast<std::uint64_t>(i) * 7777, 3000,
                                            i % 5 == 0 ? Access::kWrite : Access::kRead, i * 20));
    if (style == 1)
      for (ClientCycle c = 0; c < 9000; c += 13) memory.advance(c);
    std::vector<ClientCycle> done(ids.size());
    for (std::size_t k = 0; k < ids.size(); ++k) {
      const std::size_t i = style == 2 ? ids.size() - 1 - k : k;
      done[i] = memory.wait(ids[i]);
    }
    return done;
  };
  EXPECT_EQ(run(0), run(1));
  EXPECT_EQ(run(0), run(2));
}

TEST(MemorySystem, DoneFollowsTime) {
  const MemoryConfig config = config_for("hbm2-2000");
  MemorySystem memory = make(config, 1000000);
  const TransferId id = *memory.submit(64, 32, Access::kRead, 10);
  EXPECT_FALSE(memory.done(id, 39));
  EXPECT_TRUE(memory.done(id, 40));
  EXPECT_EQ(memory.wait(id), 40);
}

/// A client that delays requests until their time, against one that submits all of them at once.
TEST(MemorySystem, LaterArrivalsMayBeHeldBack) {
  const MemoryConfig config = config_for("hbm2e-3200", 2);
  MemorySystem early = make(config, 1000000), held = make(config, 1000000);
  const std::uint64_t far = 1 << 20;
  const TransferId first = *early.submit(0, 8192, Access::kRead, 0),
                   other = *early.submit(far, 4096, Access::kRead, 20);
  const ClientCycle done = early.wait(first), done_other = early.wait(other);
  const TransferId again = *held.submit(0, 8192, Access::kRead, 0);
  EXPECT_EQ(held.wait_before(again, 20), std::nullopt);
  const TransferId late = *held.submit(far, 4096, Access::kRead, 20);
  EXPECT_EQ(held.wait_before(again, done + 1000), done);
  EXPECT_EQ(held.wait(late), done_other);
}

TEST(MemorySystem, TheTimeBreakdownSumsToTheElapsedTime) {
  for (const std::string& name : standard_names()) {
    for (const double writes : {0.0, 0.4}) {
      const MemoryConfig config = config_for(name);
      // If a write may follow a read so soon that their bursts overlap on the bus, the time is counted twice.
      const auto& t = config.standard.timing;
      if (writes > 0 && t.rtw < t.cl - t.cwl + t.bl) continue;
      MemorySystem memory = make(config, config.standard.tick_fs());
      StreamSpec spec;
      spec.requests = 20000;
      spec.write_fraction = writes;
      spec.pattern = writes > 0 ? Pattern::kRandom : Pattern::kSequential;
      ASSERT_TRUE(run_stream(memory, spec));
      const Tick end = memory.finished() + 1000;
      memory.advance(end);
      for (int p = 0; p < config.standard.pseudochannels; ++p) {
        const PseudochannelStats stats = memory.stats(0, p);
        EXPECT_EQ(stats.time.total(), end) << name;
        EXPECT_EQ(stats.time.data, static_cast<Tick>(stats.reads + stats.writes) * config.standard.timing.bl);
        EXPECT_EQ(stats.row_hits + stats.row_misses + stats.row_conflicts, stats.reads + stats.writes);
        EXPECT_EQ(stats.time.turnaround > 0, writes > 0) << name;
      }
    }
  }
}

TEST(MemorySystem, AnOldRequestIsNotStarvedByRowHits) {
  MemoryConfig config = config_for("hbm2-2000");
  config.refresh = RefreshMode::kNone;
  config.mapping = "robaracoch";
  config.hit_cap = 8;
  const auto latency = [&](int cap) {
    config.hit_cap = cap;
    MemorySystem memory = make(config, 1000000);
    const TransferId first = memory.submit_unchecked(0, 32, Access::kRead, 0);
    memory.wait(first);  // row 0 of bank 0 is open
    const TransferId victim = memory.submit_unchecked(memory.bytes() / 2, 32, Access::kRead, 40);
    for (int i = 0; i < 400; ++i)  // repeated accesses to row 0
      memory.submit_unchecked(static_cast<std::uint64_t>(i % 30) * 32, 32, Access::kRead, 40 + i * 4);
    return memory.wait(victim) - 40;
  };
  EXPECT_LT(latency(8), 120);
  EXPECT_LT(latency(8), latency(64));
}

TEST(MemorySystem, RefusesWhatItCannotDo) {
  MemoryConfig config = config_for("hbm2-2000");
  MemorySystem memory = make(config, 1000000);
  EXPECT_FALSE(memory.submit(memory.bytes() - 10, 64, Access::kRead, 0));
  EXPECT_FALSE(memory.submit(0, 0, Access::kRead, 0));
  EXPECT_FALSE(memory.submit(0, 64, Access::kRead, -1));
  memory.advance(500);
  EXPECT_FALSE(memory.submit(0, 64, Access::kRead, 499));  // that time has been simulated
  EXPECT_TRUE(memory.submit(0, 64, Access::kRead, 500));
  config.channels = 3;
  EXPECT_FALSE(MemorySystem::create(config, 1000000));
  config.channels = 1;
  config.mapping = "nonesuch";
  EXPECT_FALSE(MemorySystem::create(config, 1000000));
  config.mapping = "";
  config.write_low = 0.9;
  EXPECT_FALSE(MemorySystem::create(config, 1000000));
}

TEST(Streams, Traces) {
  auto requests = parse_trace("# head\nR 0x100 64 0\nW 4096 128 7 # tail\n\n", "t");
  ASSERT_TRUE(requests) << requests.error().message();
  ASSERT_EQ(requests->size(), 2u);
  EXPECT_EQ((*requests)[1].address, 4096u);
  MemorySystem memory = make(config_for("hbm2-2000"), 1000000);
  const auto done = run_trace(memory, *requests);
  ASSERT_TRUE(done);
  EXPECT_GT((*done)[0], 29);
  EXPECT_EQ(parse_trace("R 0 64 5\nR 0 64 4\n", "t").error().where, "t:2");
  for (const char* bad : {"X 0 64 0\n", "R 0 64\n", "R zz 64 0\n", "R 0 64 0 0\n"}) EXPECT_FALSE(parse_trace(bad, "t"));
}

/// A gap's refreshes are counted rather than simulated one by one, and later commands see the same memory state: with a
/// command trace every one of them is simulated.
TEST(Streams, LongGapsEnd) {
  for (const RefreshMode mode : {RefreshMode::kAllBank, RefreshMode::kPerBank}) {
    MemoryConfig config = config_for("hbm2e-3200");
    config.refresh = mode;
    const auto requests = [](ClientCycle gap) {
      std::vector<TraceRequest> list;
      for (int burst = 0; burst < 2; ++burst)
        for (std::uint64_t i = 0; i < 200; ++i)
          list.push_back({i % 5 == 0 ? Access::kWrite : Access::kRead, i * 4096 % (1 << 20), 256,
                          burst * gap + static_cast<ClientCycle>(i)});
      return list;
    };
    MemorySystem skipped = *MemorySystem::create(config, 1000000), whole = *MemorySystem::create(config, 1000000, true);
    const auto a = run_trace(skipped, requests(1000000)), b = run_trace(whole, requests(1000000));
    ASSERT_TRUE(a && b);
    EXPECT_EQ(*a, *b);
    const auto x = skipped.stats(0, 0), y = whole.stats(0, 0);
    EXPECT_EQ(x.refreshes_all, y.refreshes_all);
    EXPECT_EQ(x.refreshes_bank, y.refreshes_bank);
    EXPECT_EQ(x.time.idle, y.time.idle);
    EXPECT_EQ(x.time.refresh, y.time.refresh);
    EXPECT_GT(x.refreshes_all + x.refreshes_bank, 200u);
    MemorySystem far = *MemorySystem::create(config, 1000000);
    EXPECT_TRUE(run_trace(far, requests(1000000000000)));
  }
}

TEST(LatencyHistogram, QuantilesAndEdges) {
  LatencyHistogram histogram;
  for (Tick i = 1; i <= 1000; ++i) histogram.add(i);
  EXPECT_EQ(histogram.count(), 1000u);
  EXPECT_DOUBLE_EQ(histogram.mean(), 500.5);
  EXPECT_GE(histogram.quantile(0.5), 500);
  EXPECT_LE(histogram.quantile(0.5), 640);
  EXPECT_EQ(histogram.quantile(1.0), 1000);
  for (int b = 1; b < LatencyHistogram::kBuckets; ++b)
    ASSERT_GT(LatencyHistogram::upper_edge(b), LatencyHistogram::upper_edge(b - 1));
}

}  // namespace
}  // namespace dllm::npu::dram
