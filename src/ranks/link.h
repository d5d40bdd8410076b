#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/forks.h"
#include "dllm/error.h"

namespace dllm {

/// What a frame is. The first four are the greeting.
/// kProbe says nothing: a worker sends it to learn from ZeroMQ whether rank 0 is still there. kBusy: another rank 0 has
/// this worker.
enum class FrameKind : std::uint8_t { kHello = 1, kChallenge, kOffer, kAnswer, kData, kAbort, kBusy, kProbe };

struct Frame {
  FrameKind kind = FrameKind::kProbe;
  std::vector<std::byte> bytes;
};

/// Longer messages are sent in pieces: ZeroMQ closes the connection of who sends more in one.
inline constexpr std::size_t kMostFrameBytes = std::size_t{1} << 20;
/// A whole message's bytes at most.
inline constexpr std::uint64_t kMostMessageBytes = std::uint64_t{1} << 32;
/// A peer whose machine or cable is gone is noticed after so long; a process that ends, at once. ZeroMQ's threads send
/// and answer the heartbeats. They read a connection only while its queue has room, so queues have no end here: what a
/// peer sends while this process computes must not stop its heartbeats. Their size is bounded by what was asked for.
inline constexpr int kHeartbeatMs = 500, kLostAfterMs = 2000;

/// The hint of errors about peers that are lost.
inline constexpr const char* kLookThere = "see whether its process and its network are there";

/// One peer of a ZeroMQ socket. All functions are called by one thread.
class Link {
 public:
  virtual ~Link() = default;

  virtual const std::string& name() const = 0;  ///< "rank 2 (host:port)"
  /// Whether there has been a connection.
  virtual bool reached() const { return true; }
  /// Errors: kIo (the peer is lost; nothing was taken for `milliseconds`).
  virtual Expected<void> send(FrameKind kind, std::span<const std::byte> bytes) = 0;
  /// False after `milliseconds` without a frame. Errors: kIo (lost; a frame that is none).
  virtual Expected<bool> receive(Frame& frame, int milliseconds) = 0;

  /// A message of kData in pieces after its length. `more`: follows `bytes`.
  Expected<void> send_message(std::span<const std::byte> bytes, std::span<const std::byte> more = {});
  /// Waits for one as long as the peer lives. `most`: its bytes at most. Errors: kIo, and the reason of the peer's
  /// kAbort with kCancelled.
  /// `waited_s` gets the seconds until its first bytes were there added.
  Expected<std::vector<std::byte>> receive_message(std::uint64_t most, double* waited_s = nullptr);

 private:
  Expected<void> next_data(std::vector<std::byte>& bytes);
};

/// A context of ZeroMQ and its sockets. In a child process of fork(), which has none of ZeroMQ's threads, nothing is
/// closed: what is waited for would never come.
class ZmqContext {
 public:
  ZmqContext();
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;
  void* get() const { return context_; }

 private:
  void* context_;
  std::uint32_t forks_ = fork_count();
};

class ZmqSocket {
 public:
  /// Errors: kResource.
  static Expected<ZmqSocket> make(const ZmqContext& context, int type);
  /// Encrypts with keys that follow from `key`, and closes the connections of who does not know it before any message
  /// of theirs is taken. `listens`: the side that binds. Before bind and connect. Errors: kUnsupported (ZeroMQ without
  /// CURVE), kResource.
  Expected<void> protect(const std::string& key, bool listens);
  void end_monitor() const;
  ZmqSocket(ZmqSocket&& other) noexcept : socket_(other.socket_), forks_(other.forks_) { other.socket_ = nullptr; }
  ZmqSocket& operator=(ZmqSocket&&) = delete;
  ~ZmqSocket();
  void* get() const { return socket_; }

 private:
  explicit ZmqSocket(void* socket) : socket_(socket) {}
  void* socket_;
  std::uint32_t forks_ = fork_count();
};

/// The text of the last error of ZeroMQ.
std::string zmq_text();

/// A socket that gets the events of another (ZMQ_EVENT_*).
Expected<ZmqSocket> make_monitor(const ZmqContext& context, const ZmqSocket& socket, int events);
/// The next event; 0: none now.
int next_event(const ZmqSocket& monitor);

/// A link to a worker at "host:port". Empty key: none.
Expected<std::unique_ptr<Link>> connect_link(const ZmqContext& context, const std::string& address, int rank,
                                             const std::string& key);
/// The link to the peer with this identity of a listening socket. The link borrows the socket, and the monitor of its
/// ZMQ_EVENT_DISCONNECTED.
std::unique_ptr<Link> peer_link(void* socket, const ZmqSocket& monitor, std::string identity);
/// Sends a frame to a peer of a listening socket if its queue has room.
void send_once(void* socket, const std::string& identity, FrameKind kind, std::span<const std::byte> bytes);

/// A frame of the socket, and who sent it if it is a listening one. False after `milliseconds`, or if what came is no
/// frame. Errors: kIo.
Expected<bool> receive_frame(void* socket, bool with_identity, int milliseconds, std::string& identity, Frame& frame);

/// "host:port". Errors: kUsage.
struct HostPort {
  std::string host;
  int port = 0;
  std::string text() const {
    return "tcp://" + (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
  }
  /// Of this machine alone: 127.x.x.x, ::1, localhost. Other names may mean any machine.
  bool loopback() const;
};
Expected<HostPort> parse_host_port(const std::string& text);
/// With the number of a name that this machine knows, for ZeroMQ listens on numbers only. Errors: kIo.
Expected<HostPort> resolve(HostPort at);

}  // namespace dllm
