#include "cpu/peak.h"

#include <gtest/gtest.h>

#include <set>
#include <span>
#include <string>
#include <vector>

#include "cpu/profile.h"

namespace dllm::cpu {
namespace {

TEST(Peak, LoopsRunAndAreTold) {
  PeakLoop loops[kMaxPeakLoops];
  const int count = list_peak_loops(loops);
  std::set<std::string> names;
  for (const PeakLoop& loop : std::span(loops).first(static_cast<std::size_t>(count))) {
    EXPECT_GT(loop.ops_per_round, 0);
    EXPECT_TRUE(names.insert(loop.name).second) << loop.name;
    loop.run(1);
    loop.run(1000);
  }
#if defined(__x86_64__) || defined(__aarch64__)
  EXPECT_GT(count, 0);
#endif
}

TEST(Peak, ReadsAnySize) {
  alignas(64) static std::byte data[4096];
  for (const int streams : kPeakStreams)
    for (std::size_t bytes = 0; bytes <= sizeof data; bytes += 1024) {
      EXPECT_EQ(peak_read(data, bytes, streams), 0u);
      for (std::size_t at = 0; at < sizeof data; at += 63) {
        data[at] = std::byte{1};
        EXPECT_EQ(peak_read(data, bytes, streams) != 0, at < bytes) << streams << " streams, byte " << at;
        data[at] = std::byte{0};
      }
    }
}

TEST(Peak, MeasuresWithAnyNumberOfThreads) {
  const auto peaks = measure_peaks(3);
  ASSERT_TRUE(peaks) << peaks.error().message();
  EXPECT_EQ(peaks->threads, 3);
  EXPECT_GT(peaks->read_bytes_per_second, 0);
#if defined(__x86_64__) || defined(__aarch64__)
  EXPECT_GT(peaks->f32.per_second, 0);
  EXPECT_FALSE(peaks->f32.instruction.empty());
#endif
}

TEST(Profile, AddsUpByKind) {
  Profile profile;
  profile.add("linear", 0.5);
  profile.add("add", 0.25);
  profile.add("linear", 1);
  ASSERT_EQ(profile.entries().size(), 2u);
  EXPECT_EQ(profile.entries().find("linear")->second.calls, 2);
  EXPECT_DOUBLE_EQ(profile.entries().find("linear")->second.seconds, 1.5);
  profile.clear();
  EXPECT_TRUE(profile.entries().empty());
}

}  // namespace
}  // namespace dllm::cpu
