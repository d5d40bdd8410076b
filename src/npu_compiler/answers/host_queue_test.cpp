#include "npu_compiler/answers/host_queue.h"
#include "npu_core/device/profile.h"

#include <gtest/gtest.h>

#include <random>

namespace dllm::npu {
namespace {

using enum Stretch::Kind;

/// 60 GB/s for both processors, 8 cores.
Device device_of(double shared = 60) {
  return *load_device("mobile-sm8750", {{"host.shared_gbps", std::to_string(shared)}});
}

double total(const std::vector<Stretch>& work) {
  double sum = 0;
  for (const Stretch& one : work) sum += one.seconds;
  return sum;
}

TEST(HostQueue, RunsBesideAStepWithoutTraffic) {
  HostQueue queue(device_of());
  const std::size_t pass = queue.push({{0.5, 0}, {0.25, 0}});
  const std::vector<Stretch> step = {{1, 0}, {1, 0}};
  const Overlap overlap = queue.run(step, 10);
  EXPECT_DOUBLE_EQ(overlap.seconds, 2);
  EXPECT_EQ(overlap.lost, 0);
  EXPECT_DOUBLE_EQ(overlap.busy, 0.75);
  EXPECT_EQ(queue.passes()[pass].start, 10);
  EXPECT_DOUBLE_EQ(queue.passes()[pass].end, 10.75);
  EXPECT_TRUE(queue.empty());
}

/// Device and host want 40 GB/s each of 60: both run at three quarters. Then the host alone.
TEST(HostQueue, SharesTheMemoryFairly) {
  HostQueue queue(device_of());
  queue.push({{3, 3 * 40e9}});
  const std::vector<Stretch> step = {{1.5, 1.5 * 40e9}};
  const Overlap overlap = queue.run(step, 0);
  EXPECT_DOUBLE_EQ(overlap.seconds, 2);
  EXPECT_DOUBLE_EQ(overlap.lost, 0.5);
  EXPECT_DOUBLE_EQ(overlap.busy, 2);
  EXPECT_DOUBLE_EQ(overlap.bytes, 60e9);
  const Overlap rest = queue.finish(0, 2);
  EXPECT_DOUBLE_EQ(rest.seconds, 1.5);
  EXPECT_DOUBLE_EQ(rest.bytes, 60e9);
  EXPECT_DOUBLE_EQ(queue.passes()[0].end, 3.5);
}

/// Who wants less than half gets it: 10 GB/s to the device, and the host 50 instead of 55 GB/s.
TEST(HostQueue, ASmallDemandIsMet) {
  HostQueue queue(device_of());
  queue.push({{1, 55e9}});
  const std::vector<Stretch> step = {{4, 40e9}};
  const Overlap overlap = queue.run(step, 0);
  EXPECT_EQ(overlap.lost, 0);
  EXPECT_DOUBLE_EQ(overlap.seconds, 4);
  EXPECT_DOUBLE_EQ(queue.passes()[0].end, 1.1);
}

TEST(HostQueue, AStepsOwnWorkOnTheHostComesFirst) {
  HostQueue queue(device_of());
  queue.push({{1.75, 0}});
  const std::vector<Stretch> step = {{1, 0, kHost}, {2, 0, kDispatch}, {1, 0, kHost}};
  const Overlap overlap = queue.run(step, 0);
  EXPECT_DOUBLE_EQ(overlap.seconds, 4);
  EXPECT_DOUBLE_EQ(overlap.dispatch, 2);  // seven of eight cores: 1.75 s take 2
  EXPECT_DOUBLE_EQ(overlap.busy, 2);
  EXPECT_DOUBLE_EQ(queue.passes()[0].end, 3);
}

TEST(HostQueue, PassesWaitForEachOther) {
  HostQueue queue(device_of());
  const std::size_t first = queue.push({{1, 0}}), second = queue.push({{1, 0}}), third = queue.push({});
  const std::vector<Stretch> half = {{0.5, 0}};
  queue.run(half, 0);
  EXPECT_FALSE(queue.finished(first));
  EXPECT_EQ(queue.passes()[second].start, -1);
  queue.drop(first, 0.5);
  EXPECT_TRUE(queue.passes()[first].dropped);
  EXPECT_DOUBLE_EQ(queue.finish(third, 0.5).seconds, 1);
  EXPECT_EQ(queue.passes()[second].start, 0.5);
  EXPECT_DOUBLE_EQ(queue.passes()[second].end, 1.5);
  queue.drop(second, 9);  // it is over
  EXPECT_DOUBLE_EQ(queue.passes()[second].end, 1.5);
}

/// On random work: time is the step's plus what it lost, all bytes are moved, no more than the memory can, and no
/// faster than either alone.
TEST(HostQueue, ConservesWorkAndBandwidth) {
  std::mt19937 random(7);
  const auto number = [&random](double low, double high) { return std::uniform_real_distribution(low, high)(random); };
  for (int round = 0; round < 200; ++round) {
    const double shared = number(56, 90);
    HostQueue queue(device_of(shared));
    std::vector<Stretch> step, host;
    for (int i = 0; i < 12; ++i) {
      const double seconds = number(0, 2);
      const Stretch::Kind kind = i % 5 == 3 ? kHost : i % 5 == 1 ? kDispatch : kDevice;
      step.push_back({seconds, kind == kDevice ? seconds * number(0, 60e9) : 0, kind});
      const double other = number(0, 2);
      host.push_back({other, other * number(0, 55e9)});
    }
    double device_bytes = 0, host_bytes = 0;
    for (const Stretch& one : step) device_bytes += one.bytes;
    for (const Stretch& one : host) host_bytes += one.bytes;
    queue.push(host);
    const Overlap during = queue.run(step, 0), after = queue.finish(0, during.seconds);
    EXPECT_NEAR(during.seconds, total(step) + during.lost, 1e-9);
    EXPECT_NEAR(during.bytes + after.bytes, host_bytes, 1e-3 * host_bytes + 1);
    EXPECT_GE(during.busy + after.busy, total(host) - 1e-9);
    EXPECT_LE(device_bytes + during.bytes, shared * 1e9 * during.seconds * (1 + 1e-9));
    EXPECT_LE(during.dispatch, during.busy);
    if (after.seconds > 0) {
      EXPECT_NEAR(queue.passes()[0].end, during.seconds + after.seconds, 1e-9);
    }
  }
}

}  // namespace
}  // namespace dllm::npu
