#include "ranks/tcp.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/fuzz_replay.h"
#include "ranks/link.h"
#include "ranks/proof.h"
#include "ranks/testing/port_fuzz.h"
#include "ranks/testing/test_worker.h"

namespace dllm {
namespace {

using test::TestWorker;

std::vector<std::byte> bytes_of_text(const std::string& text) {
  const auto* const at = reinterpret_cast<const std::byte*>(text.data());
  return {at, at + text.size()};
}

/// Everyone sends `size` times its rank + 1, of different sizes.
void gather_parts(Communicator& ranks, std::size_t size) {
  std::vector<std::size_t> sizes;
  std::size_t sum = 0;
  for (int r = 0; r < ranks.size(); ++r) sizes.push_back(size * static_cast<std::size_t>(r)), sum += sizes.back();
  const std::vector<std::byte> own(sizes[static_cast<std::size_t>(ranks.rank())], std::byte(ranks.rank() + 1));
  std::vector<std::byte> all(sum);
  const auto gathered = ranks.all_gather(own, sizes, all);
  ASSERT_TRUE(gathered) << gathered.error().message();
  std::size_t at = 0;
  for (int r = 0; r < ranks.size(); ++r)
    for (std::size_t i = 0; i < sizes[static_cast<std::size_t>(r)]; ++i) ASSERT_EQ(all[at++], std::byte(r + 1));
}

TEST(TcpRanks, GatherAndBroadcast) {
  const auto work = [](Communicator& ranks) {
    const auto message = ranks.broadcast({});
    ASSERT_TRUE(message);
    EXPECT_EQ(message->size(), 3'000'000U);
    for (const std::size_t size : {0U, 1U, 100U, 2'500'000U}) gather_parts(ranks, size);
  };
  TestWorker one("secret", work), two("secret", work);
  const auto ranks = connect_ranks({one.address(), two.address()}, {"secret"}, bytes_of_text("an offer"));
  ASSERT_TRUE(ranks) << ranks.error().message();
  EXPECT_EQ((*ranks)->size(), 3);
  const RankListener::Offer offer = two.offer();
  EXPECT_EQ(offer.rank, 2);
  EXPECT_EQ(offer.ranks, 3);
  EXPECT_EQ(offer.bytes, bytes_of_text("an offer"));
  ASSERT_TRUE((*ranks)->broadcast(std::vector<std::byte>(3'000'000)));
  for (const std::size_t size : {0U, 1U, 100U, 2'500'000U}) gather_parts(**ranks, size);
}

TEST(TcpRanks, AnotherKeyIsRefused) {
  bool worked = false;
  TestWorker worker("secret", [&](Communicator&) { worked = true; });
  const auto ranks = connect_ranks({worker.address()}, {"guess"}, bytes_of_text("offer"));
  ASSERT_FALSE(ranks);
  EXPECT_NE(ranks.error().what.find("key"), std::string::npos);
  EXPECT_FALSE(worked);
}

TEST(TcpRanks, OtherMachinesNeedAKey) {
  for (const char* address : {"0.0.0.0:0", "192.168.1.2:7070", "[::]:0"}) {
    const auto listener = RankListener::open(address, {});
    ASSERT_FALSE(listener) << address;
    EXPECT_EQ(listener.error().code, ErrorCode::kUsage);
    EXPECT_FALSE(connect_ranks({address}, {}, {}));
  }
  EXPECT_TRUE(RankListener::open("127.0.0.1:0", {}));
  EXPECT_TRUE(RankListener::open("localhost:0", {}));
  for (const char* wrong : {"", "host", "host:", ":1", "host:x", "host:70000", "host:-1", "a b:1", "host:1x"})
    EXPECT_FALSE(parse_host_port(wrong)) << wrong;
  EXPECT_EQ(parse_host_port("[fe80::1]:7")->host, "fe80::1");
}

TEST(TcpRanks, NobodyListens) {
  const auto listener = RankListener::open("127.0.0.1:0", {});
  const std::string address = "127.0.0.1:" + std::to_string((*listener)->port());
  EXPECT_FALSE(RankListener::open(address, {})) << "the port is taken";
  const auto silent = connect_ranks({"127.0.0.1:1"}, {}, {});
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code, ErrorCode::kIo);
}

/// `make nightly` checks the 5 s that users are promised; other work may lengthen it.
std::chrono::duration<double> most_until_named() {
  const char* const seconds = std::getenv("DLLM_KILL_WITHIN_S");
  return std::chrono::duration<double>(seconds != nullptr ? std::atof(seconds) : 60);
}

TEST(TcpRanks, ALostWorkerIsNamedWithinSeconds) {
  auto worker = std::make_unique<TestWorker>("", [](Communicator& ranks) { (void)ranks.broadcast({}); });
  const std::string address = worker->address();
  const auto ranks = connect_ranks({address}, {}, {});
  ASSERT_TRUE(ranks) << ranks.error().message();
  ASSERT_TRUE((*ranks)->broadcast({}));
  const auto start = std::chrono::steady_clock::now();
  worker.reset();
  const std::size_t sizes[] = {1, 1};
  std::byte own{}, all[2];
  const auto gathered = (*ranks)->all_gather({&own, 1}, sizes, all);
  ASSERT_FALSE(gathered);
  EXPECT_NE(gathered.error().message().find("rank 1 (" + address + ")"), std::string::npos)
      << gathered.error().message();
  EXPECT_LT(std::chrono::steady_clock::now() - start, most_until_named());
  EXPECT_FALSE((*ranks)->broadcast({})) << "the error stays";
}

TEST(TcpRanks, ALostLeaderEndsTheWorkersWait) {
  std::string error;
  {
    TestWorker worker("", [&](Communicator& ranks) {
      const auto message = ranks.broadcast({});
      if (!message) error = message.error().message();
    });
    ASSERT_TRUE(connect_ranks({worker.address()}, {}, {}));
  }
  EXPECT_NE(error.find("rank 0"), std::string::npos) << error;
}

TEST(TcpRanks, AReasonToStopReachesTheOthers) {
  std::string error;
  {
    TestWorker worker("", [&](Communicator& ranks) {
      const auto message = ranks.broadcast({});
      if (!message) error = message.error().message();
    });
    const auto ranks = connect_ranks({worker.address()}, {}, {});
    ASSERT_TRUE(ranks);
    (*ranks)->abort("out of memory here");
  }
  EXPECT_NE(error.find("out of memory here"), std::string::npos) << error;
}

TEST(TcpRanks, SizesThatDifferAreAnError) {
  TestWorker worker("", [](Communicator& ranks) {
    const std::size_t sizes[] = {2, 4};
    std::byte own[4], all[6];
    EXPECT_FALSE(ranks.all_gather(own, sizes, all));
  });
  const auto ranks = connect_ranks({worker.address()}, {}, {});
  ASSERT_TRUE(ranks);
  const std::size_t sizes[] = {1, 2};
  std::byte own{}, all[3];
  EXPECT_FALSE((*ranks)->all_gather({&own, 1}, sizes, all));
}

/// Frames of a stranger, in place of a greeting and after the first part of one.
TEST(TcpRanks, StrangersAreNotHeard) {
  TestWorker worker("secret", [](Communicator&) {});
  const ZmqContext context;
  for (const std::string& text : {std::string(), std::string("\x01"), std::string(33, '\x01'), std::string(200, '\x03'),
                                  std::string("\x05 data"), std::string("\xff")}) {
    const auto link = *connect_link(context, worker.address(), 1, "secret");
    (void)link->send(FrameKind::kOffer, bytes_of_text(text));
    (void)link->send(FrameKind::kHello, bytes_of_text(std::string(32, 'n')));
    Frame frame;
    const auto came = link->receive(frame, 60'000);
    ASSERT_TRUE(came && *came);
    EXPECT_EQ(frame.kind, FrameKind::kChallenge);
    EXPECT_EQ(frame.bytes.size(), 64U);
    (void)link->send(FrameKind::kOffer,
                     bytes_of_text(std::string(32, 'p') + std::string("\1\0\0\0\2\0\0\0", 8) + text));
  }
  const auto ranks = connect_ranks({worker.address()}, {"secret"}, {});
  ASSERT_TRUE(ranks) << "the worker still listens";
}

/// Nothing collects at a rank 0 that computes, or waits for its user.
TEST(TcpRanks, AWaitingWorkerSendsNothing) {
  const ZmqContext context;
  const ZmqSocket socket = *ZmqSocket::make(context, ZMQ_ROUTER);
  const ZmqSocket monitor = *make_monitor(context, socket, ZMQ_EVENT_DISCONNECTED);
  ASSERT_EQ(zmq_bind(socket.get(), "tcp://127.0.0.1:*"), 0);
  char endpoint[64];
  std::size_t size = sizeof endpoint;
  zmq_getsockopt(socket.get(), ZMQ_LAST_ENDPOINT, endpoint, &size);
  const auto leader = *connect_link(context, std::string(endpoint).substr(6), 1, "");
  ASSERT_TRUE(leader->send(FrameKind::kHello, {}));
  std::string identity;
  Frame frame;
  ASSERT_TRUE(*receive_frame(socket.get(), true, 60'000, identity, frame));
  std::thread waiting([&] {
    const auto message = peer_link(socket.get(), monitor, identity)->receive_message(100);
    EXPECT_TRUE(message) << message.error().message();
  });
  const auto came = leader->receive(frame, 4 * kHeartbeatMs);
  EXPECT_TRUE(came && !*came);
  EXPECT_TRUE(leader->send_message({}));
  waiting.join();
}

TEST(TcpRanks, HostileBytesToThePort) {
  test::replay_corpus("rank_port", 8,
                      [](const auto& bytes) { FuzzedPort::get().send(std::as_bytes(std::span(bytes))); });
}

TEST(TcpRanks, SilentWorkersCanBeDoneWithout) {
  TestWorker worker("", [](Communicator& ranks) { (void)ranks.broadcast({}); });
  const std::string silent = "127.0.0.1:1";
  EXPECT_FALSE(connect_ranks({silent, worker.address()}, {}, {}));
  std::vector<std::string> missing;
  Reach reach;
  reach.absent = Absent::kSilent;
  reach.missing = [&](const std::string& address, const Error& why) {
    missing.push_back(address);
    EXPECT_EQ(why.code, ErrorCode::kIo);
  };
  {
    const auto ranks = connect_ranks({silent, worker.address()}, {}, {}, reach);
    ASSERT_TRUE(ranks) << ranks.error().message();
    EXPECT_EQ((*ranks)->size(), 2);
    EXPECT_EQ((*ranks)->name(1), "rank 1 (" + worker.address() + ")");
    EXPECT_EQ(missing, std::vector<std::string>{silent});
    EXPECT_FALSE(listens(worker.address(), {})) << "it is taken";
    // Who is busy may soon be free.
    EXPECT_FALSE(connect_ranks({worker.address()}, {}, {}, reach));
    reach.absent = Absent::kUnwilling;
    const auto alone = connect_ranks({worker.address()}, {}, {}, reach);
    ASSERT_TRUE(alone);
    EXPECT_EQ((*alone)->size(), 1);
    ASSERT_TRUE((*ranks)->broadcast({}));
  }
  reach.go_on = [] { return false; };
  EXPECT_EQ(connect_ranks({worker.address()}, {}, {}, reach).error().code, ErrorCode::kCancelled);
}

/// Both wait when this thread has been without a processor: the frame, and ZeroMQ's event of the connection.
TEST(TcpRanks, WhoHasAnsweredIsThere) {
  const ZmqContext context;
  const ZmqSocket socket = *ZmqSocket::make(context, ZMQ_DEALER);
  ASSERT_EQ(zmq_bind(socket.get(), "tcp://127.0.0.1:*"), 0);
  char endpoint[64];
  std::size_t size = sizeof endpoint;
  zmq_getsockopt(socket.get(), ZMQ_LAST_ENDPOINT, endpoint, &size);
  const auto link = *connect_link(context, std::string(endpoint).substr(6), 1, "");
  EXPECT_FALSE(link->reached());
  const auto busy = static_cast<char>(FrameKind::kBusy);
  ASSERT_EQ(zmq_send(socket.get(), &busy, 1, 0), 1) << "waits for the connection";
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  Frame frame;
  const auto came = link->receive(frame, 60'000);
  ASSERT_TRUE(came && *came);
  EXPECT_TRUE(link->reached());
}

TEST(TcpRanks, EachRankGetsItsOwn) {
  const auto work = [](Communicator& ranks) {
    const auto part = ranks.scatter({}, 3'000'000);
    ASSERT_TRUE(part) << part.error().message();
    EXPECT_EQ(*part, std::vector<std::byte>(static_cast<std::size_t>(ranks.rank() - 1) * 2'500'000, std::byte{5}));
    EXPECT_FALSE(ranks.scatter({}, 9)) << "more than was expected";
  };
  TestWorker one("", work), two("", work);
  const auto ranks = connect_ranks({one.address(), two.address()}, {}, {});
  ASSERT_TRUE(ranks) << ranks.error().message();
  ASSERT_TRUE((*ranks)->scatter({{}, {}, std::vector<std::byte>(2'500'000, std::byte{5})}, 0));
  ASSERT_TRUE((*ranks)->scatter({{}, std::vector<std::byte>(10), std::vector<std::byte>(10)}, 0));
}

TEST(TcpRanks, WhoDoesNotEncryptIsNotHeard) {
  TestWorker worker("secret", [](Communicator&) {});
  const ZmqContext context;
  const auto link = *connect_link(context, worker.address(), 1, "");
  (void)link->send(FrameKind::kHello, bytes_of_text(std::string(32, 'n')));
  Frame frame;
  const auto came = link->receive(frame, 60'000);
  ASSERT_FALSE(came);
  EXPECT_NE(came.error().what.find("key"), std::string::npos) << came.error().message();
  EXPECT_TRUE(connect_ranks({worker.address()}, {"secret"}, {})) << "the worker still listens";
}

TEST(TcpRanks, AWorkerThatIsTakenSaysSo) {
  TestWorker worker("", [](Communicator& ranks) { (void)ranks.broadcast({}); });
  const auto first = connect_ranks({worker.address()}, {}, {});
  ASSERT_TRUE(first);
  const auto second = connect_ranks({worker.address()}, {}, {});
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().what.find("busy"), std::string::npos) << second.error().message();
  EXPECT_TRUE((*first)->broadcast({})) << "the first is not disturbed";
  const auto twice = connect_ranks({worker.address(), worker.address()}, {}, {});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, ErrorCode::kUsage);
}

TEST(TcpRanks, AChildProcessClosesNothing) {
  TestWorker worker("secret", [](Communicator& ranks) { EXPECT_TRUE(ranks.broadcast({})); });
  auto ranks = connect_ranks({worker.address()}, {"secret"}, {});
  ASSERT_TRUE(ranks);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(600);
    ranks->reset();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE((*ranks)->broadcast({})) << "the parent goes on";
}

TEST(TcpRanks, NamesOfThisMachine) {
  char name[256] = {};
  ASSERT_EQ(::gethostname(name, sizeof name - 1), 0);
  const auto listener = RankListener::open(std::string(name) + ":0", {"secret"});
  EXPECT_TRUE(listener) << listener.error().message();
  EXPECT_FALSE(RankListener::open("no-such-host.invalid:0", {"secret"}));
  for (const char* own : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) EXPECT_TRUE((HostPort{own, 1}.loopback()));
  for (const char* other : {"127.example.com", "127.0.0.1.example.com", "128.0.0.1", "::2", "localhost.example.com"})
    EXPECT_FALSE((HostPort{other, 1}.loopback())) << other;
}

TEST(Proof, DependsOnEverything) {
  const Nonce a = *make_nonce(), b = *make_nonce();
  EXPECT_NE(a, b);
  const auto said = bytes_of_text("said");
  const Proof proof = *prove("key", "worker", a, b, said);
  EXPECT_TRUE(same_proof(proof, *prove("key", "worker", a, b, said)));
  EXPECT_FALSE(same_proof(proof, *prove("kez", "worker", a, b, said)));
  EXPECT_FALSE(same_proof(proof, *prove("key", "rank 0", a, b, said)));
  EXPECT_FALSE(same_proof(proof, *prove("key", "worker", b, a, said)));
  EXPECT_FALSE(same_proof(proof, *prove("key", "worker", a, b, bytes_of_text("sais"))));
}

}  // namespace
}  // namespace dllm
