// The limits that the HTTP server keeps by itself, with requests that only its handler answers.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "serve/http.h"

namespace dllm::serve {
namespace {

/// A connection to the loopback. What is not sent or received within a minute counts as the end.
class Client {
 public:
  explicit Client(std::uint16_t port, int receive_buffer = 0) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const timeval limit{60, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& text) const { ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL); }
  /// Up to and including `end`, or until the connection ends.
  std::string read(const std::string& end) const {
    std::string text;
    char byte = 0;
    while (!text.ends_with(end) && ::recv(socket_, &byte, 1, 0) == 1) text += byte;
    return text;
  }
  int status() const {
    const std::string line = read("\r\n");
    return line.starts_with("HTTP/1.1 ") ? std::stoi(line.substr(9)) : 0;
  }

 private:
  int socket_;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void start(HttpLimits limits, HttpServer::Handler handler) {
    HttpServer::Options options;
    options.port = 0;
    options.limits = limits;
    options.handler = std::move(handler);
    options.refusal = [](int status, const std::string& message) {
      return HttpResponse{.status = status, .body = message, .type = "text/plain"};
    };
    auto server = HttpServer::listen(std::move(options));
    ASSERT_TRUE(server) << server.error().message();
    server_ = *std::move(server);
    thread_ = std::thread([this] { server_->run(); });
  }
  void TearDown() override {
    server_->abort();
    thread_.join();
  }
  /// False after a minute.
  template <class Condition>
  static bool soon(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
  static std::string post(std::size_t bytes) {
    return "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n" +
           std::string(bytes, ' ');
  }
  static std::string get(const std::string& header = "") { return "GET / HTTP/1.1\r\n" + header + "\r\n"; }
  static void answer(const std::shared_ptr<Exchange>& exchange) {
    exchange->reply(HttpResponse{.body = std::to_string(exchange->request().body.size()) + "\n"});
  }

  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(HttpServerTest, BodiesOfTheLimitAreReadAndNoLongerOnes) {
  start({.body = 1000}, answer);
  for (const auto& [bytes, status] : {std::pair(1000, 200), std::pair(1001, 413), std::pair(100000, 413)}) {
    const Client client(server_->port());
    client.send(post(static_cast<std::size_t>(bytes)));
    EXPECT_EQ(client.status(), status) << bytes;
  }
  // In chunks, without a length that could be refused at once.
  for (const auto& [chunks, status] : {std::pair(10, 200), std::pair(11, 413)}) {
    const Client client(server_->port());
    std::string text = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (int i = 0; i < chunks; ++i) text += "64\r\n" + std::string(100, ' ') + "\r\n";
    client.send(text + "0\r\n\r\n");
    EXPECT_EQ(client.status(), status) << chunks;
  }
}

TEST_F(HttpServerTest, HeadersAreLimited) {
  start({.header = 2000}, answer);
  const std::string rest = "Host: x\r\nX: \r\n";
  for (const auto& [bytes, status] : {std::pair(1900, 200), std::pair(2100, 431), std::pair(100000, 431)}) {
    const Client client(server_->port());
    const std::string line(static_cast<std::size_t>(bytes) - rest.size() - 18, 'y');
    client.send(get("Host: x\r\nX: " + line + "\r\n"));
    EXPECT_EQ(client.status(), status) << bytes;
  }
}

TEST_F(HttpServerTest, FurtherConnectionsAreRefusedWhileRequestsAreAnswered) {
  std::mutex mutex;
  std::vector<std::shared_ptr<Exchange>> waiting;
  std::atomic<bool> hold{true};
  std::atomic<std::size_t> held{0};
  start({.connections = 2}, [&](const std::shared_ptr<Exchange>& exchange) {
    if (!hold) return answer(exchange);
    const std::lock_guard lock(mutex);
    waiting.push_back(exchange);
    held = waiting.size();
  });
  {
    const Client one(server_->port()), two(server_->port());
    for (const Client* client : {&one, &two}) client->send(get("Host: x\r\n"));
    ASSERT_TRUE(soon([&] { return held == 2; }));
    EXPECT_EQ(server_->connections(), 2u);
    const Client three(server_->port());
    EXPECT_EQ(three.status(), 503);
    hold = false;
    for (const auto& exchange : waiting) answer(exchange);
    for (const Client* client : {&one, &two}) EXPECT_EQ(client->status(), 200);
    one.read("\r\n\r\n0\n");  // a connection that is open stays usable
    one.send(get("Host: x\r\n"));
    EXPECT_EQ(one.status(), 200);
  }
  waiting.clear();
  ASSERT_TRUE(soon([&] { return server_->connections() == 0; }));
  const Client again(server_->port());
  again.send(get("Host: x\r\n"));
  EXPECT_EQ(again.status(), 200);
}

TEST_F(HttpServerTest, AFurtherConnectionEndsTheOneThatWasIdleForTheLongestTime) {
  start({.connections = 2}, answer);
  const Client one(server_->port());
  one.send(get("Host: x\r\n"));
  EXPECT_EQ(one.status(), 200);
  one.read("\r\n\r\n0\n");
  const Client two(server_->port());
  two.send(get("Host: x\r\n"));
  EXPECT_EQ(two.status(), 200);
  two.read("\r\n\r\n0\n");
  const Client three(server_->port());
  three.send(get("Host: x\r\n"));
  EXPECT_EQ(three.status(), 200);
  EXPECT_EQ(one.read("\n"), "");  // closed
  two.send(get("Host: x\r\n"));
  EXPECT_EQ(two.status(), 200);
}

TEST_F(HttpServerTest, AStreamThatNobodyReadsIsEndedAtTheLimit) {
  std::atomic<bool> abandoned{false};
  std::atomic<std::size_t> most{0};
  std::shared_ptr<Exchange> stream;
  std::atomic<bool> begun{false};
  constexpr std::size_t kLimit = 1 << 20, kPiece = 1 << 16;
  start({.backlog = kLimit}, [&](const std::shared_ptr<Exchange>& exchange) {
    exchange->on_abandoned([&] { abandoned = true; });
    exchange->begin_stream(HttpResponse{.type = "text/plain"}, ": ping\n");
    stream = exchange;
    begun = true;
  });
  const Client sleeper(server_->port(), 4096);
  sleeper.send(get("Host: x\r\n"));
  ASSERT_TRUE(soon([&] { return begun.load(); }));
  // 64 MB: more than any socket's buffers.
  for (int i = 0; i < 1024 && !abandoned; ++i) {
    stream->write(std::string(kPiece, 'x'));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // no more than a few are on their way to the server
    most = std::max(most.load(), stream->backlog());
  }
  EXPECT_TRUE(soon([&] { return abandoned.load(); }));
  EXPECT_LE(most, kLimit + 64);  // a chunk's head and end are not counted
  stream.reset();
  EXPECT_TRUE(soon([&] { return server_->connections() == 0; }));
}

/// The handler's own callback is replaced by that of a thread which is faster than the handler.
TEST_F(HttpServerTest, CallsTakeEffectInTheirOrder) {
  std::atomic<bool> first{false}, second{false};
  std::shared_ptr<Exchange> open;
  std::atomic<bool> begun{false};
  start({}, [&](const std::shared_ptr<Exchange>& exchange) {
    exchange->on_abandoned([&] { first = true; });
    std::thread([&] { exchange->on_abandoned([&] { second = true; }); }).join();
    open = exchange;
    begun = true;
  });
  {
    const Client gone(server_->port());
    gone.send(get("Host: x\r\n"));
    ASSERT_TRUE(soon([&] { return begun.load(); }));
  }
  EXPECT_TRUE(soon([&] { return first || second; }));
  EXPECT_TRUE(second && !first);
  open.reset();
}

TEST_F(HttpServerTest, WhoDoesNotReadAnAnswerIsLeft) {
  start({.write_seconds = 0.3}, [](const std::shared_ptr<Exchange>& exchange) {
    exchange->reply(HttpResponse{.body = std::string(64 << 20, 'x'), .type = "text/plain"});
  });
  const Client sleeper(server_->port(), 4096);
  sleeper.send(get("Host: x\r\n"));
  EXPECT_EQ(sleeper.status(), 200);
  EXPECT_TRUE(soon([&] { return server_->connections() == 0; }));
}

}  // namespace
}  // namespace dllm::serve
