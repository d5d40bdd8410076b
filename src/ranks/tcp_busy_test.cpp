#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "ranks/link.h"
#include "ranks/tcp.h"
#include "ranks/testing/test_worker.h"

namespace dllm {
namespace {

using test::TestWorker;

/// The longest time that this process has been without a processor while this lives: how late a thread woke up.
class StallMeter {
 public:
  StallMeter()
      : thread_([this](const std::stop_token& stop) {
          constexpr std::chrono::milliseconds kNap(20);
          while (!stop.stop_requested()) {
            const auto begin = std::chrono::steady_clock::now();
            std::this_thread::sleep_for(kNap);
            const auto late = std::chrono::steady_clock::now() - begin - kNap;
            worst_ms_ =
                std::max<std::int64_t>(worst_ms_, std::chrono::duration_cast<std::chrono::milliseconds>(late).count());
          }
        }) {}
  std::int64_t worst_ms() const { return worst_ms_; }

 private:
  std::atomic<std::int64_t> worst_ms_{0};
  std::jthread thread_;
};

/// A gather and a broadcast of so many bytes, before which the other side is busy for longer than heartbeats may be
/// missing. "" or what failed. Without a key: ZeroMQ's thread encrypts for seconds on a busy machine, and sends no
/// heartbeats meanwhile.
std::string exchange_of_busy_ranks(std::size_t bytes) {
  const std::size_t sizes[] = {0, bytes};
  const auto busy = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2 * kLostAfterMs)); };
  std::string of_worker = "the worker has not ended", of_leader;
  {
    TestWorker worker("", [&](Communicator& ranks) {
      const std::vector<std::byte> own(bytes, std::byte{7});
      std::vector<std::byte> all(bytes);
      const auto gathered = ranks.all_gather(own, sizes, all);
      busy();
      const auto message = ranks.broadcast({});
      of_worker = !gathered ? gathered.error().message() : !message ? message.error().message() : "";
      EXPECT_EQ(message ? message->size() : bytes, bytes);
    });
    const auto ranks = connect_ranks({worker.address()}, {}, {});
    if (!ranks) return ranks.error().message();
    busy();
    std::vector<std::byte> all(bytes);
    const auto gathered = (*ranks)->all_gather({}, sizes, all);
    EXPECT_TRUE(!gathered || all.back() == std::byte{7});
    const auto told = (*ranks)->broadcast(all);
    of_leader = !gathered ? gathered.error().message() : !told ? told.error().message() : "";
  }
  return of_leader.empty() ? of_worker : of_leader;
}

/// ZeroMQ closes connections whose heartbeats it does not read, and it reads none while a queue is full.
TEST(TcpRanks, WhoDoesNotReadIsNotLost) {
  constexpr std::size_t kBytes = std::size_t{40} << 20;
  constexpr int kAttempts = 5;
  std::int64_t stalled_ms = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const StallMeter meter;
    const std::string problem = exchange_of_busy_ranks(kBytes);
    if (problem.empty()) return;
    stalled_ms = meter.worst_ms();
    // Who gets no processor sends no heartbeats, whatever the queues are like.
    ASSERT_GT(stalled_ms, kLostAfterMs / 4) << problem;
  }
  GTEST_SKIP() << "this machine is too busy: a thread waited " << stalled_ms << " ms for a processor";
}

}  // namespace
}  // namespace dllm
