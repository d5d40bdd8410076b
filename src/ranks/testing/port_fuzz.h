#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "ranks/tcp.h"

namespace dllm {

/// A worker's port, to which a stranger sends bytes. The body of fuzz/fuzz_rank_port.cpp, which a test replays.
///
/// The first byte says how: its lowest bit sends the rest as it is, else after a greeting of ZeroMQ, in frames whose
/// lengths the bytes give. Frames are what Listener reads; a greeting that is damaged is ZeroMQ's to refuse.
class FuzzedPort {
 public:
  static FuzzedPort& get() {
    static FuzzedPort port;
    return port;
  }

  void send(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    const int connection = connect_to(listener_->port());
    std::vector<std::byte> sent;
    if ((bytes[0] & std::byte{1}) == std::byte{})
      sent = in_frames(bytes.subspan(1));
    else
      sent.assign(bytes.begin() + 1, bytes.end());
    (void)::send(connection, sent.data(), sent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    listen(3);
    ::close(connection);
    listen(1);
    constexpr int kBetweenGreetings = 64;
    if (++inputs_ % kBetweenGreetings == 1) check_greeting();
  }

 private:
  FuzzedPort() : listener_(*RankListener::open("127.0.0.1:0", {})) {}

  /// A closed port refuses at once. Else this machine is busy, a signal came, or numbers of ports ran out.
  static int connect_to(int port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int attempt = 0; attempt < 300; ++attempt) {
      const int connection = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (connection < 0) __builtin_trap();  // the listener keeps connections that have ended
      if (::connect(connection, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) return connection;
      if (errno == ECONNREFUSED) __builtin_trap();
      ::close(connection);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    __builtin_trap();
  }

  /// After the greeting of ZMTP 3 (rfc.zeromq.org/spec/23) without encryption: frames of 0 to 255 bytes each.
  static std::vector<std::byte> in_frames(std::span<const std::byte> bytes) {
    std::string text("\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL", 16);
    text.resize(64, '\0');
    const std::string ready("\5READY\13Socket-Type\0\0\0\6DEALER", 28);
    text += '\4';
    text += static_cast<char>(ready.size());
    text += ready;
    std::vector<std::byte> sent(text.size());
    std::memcpy(sent.data(), text.data(), text.size());
    while (!bytes.empty()) {
      const std::size_t size = std::min(static_cast<std::size_t>(bytes[0]), bytes.size() - 1);
      sent.push_back({});  // the last part of a message
      sent.push_back(static_cast<std::byte>(size));
      sent.insert(sent.end(), bytes.begin() + 1, bytes.begin() + 1 + static_cast<std::ptrdiff_t>(size));
      bytes = bytes.subspan(1 + size);
    }
    return sent;
  }

  void listen(int milliseconds) {
    RankListener::Offer offer;
    const auto came = listener_->wait(milliseconds, offer);
    if (!came || *came) __builtin_trap();  // it ends, or believes an offer without a proof
  }

  /// Who knows the key is still heard. On a busy machine a greeting may take longer than ranks wait for each other, so
  /// that one attempt says nothing.
  void check_greeting() {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::seconds(30);
    std::atomic<bool> refused{false}, ended{false};
    std::thread leader([&] {
      while (!refused && Clock::now() < end) {
        const auto ranks = connect_ranks({"127.0.0.1:" + std::to_string(listener_->port())}, {}, {});
        refused = !ranks && ranks.error().what == "a test";
      }
      ended = true;
    });
    while (!ended) {
      RankListener::Offer offer;
      const auto came = listener_->wait(20, offer);
      if (!came) __builtin_trap();
      if (*came) listener_->refuse("a test");
    }
    leader.join();
    if (!refused) __builtin_trap();
  }

  std::unique_ptr<RankListener> listener_;
  int inputs_ = 0;
};

}  // namespace dllm
