#include "ranks/link.h"

#include <fmt/format.h>
#include <zmq.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/try.h"

namespace dllm {

ZmqContext::ZmqContext() : context_(zmq_ctx_new()) {}
ZmqContext::~ZmqContext() { zmq_ctx_term(context_); }

std::string zmq_text() { return zmq_strerror(zmq_errno()); }

Expected<ZmqSocket> ZmqSocket::make(const ZmqContext& context, int type) {
  void* const socket = zmq_socket(context.get(), type);
  if (socket == nullptr) return Error{ErrorCode::kResource, "no socket: " + zmq_text(), "ranks", ""};
  const auto set = [socket](int option, int value) { zmq_setsockopt(socket, option, &value, sizeof value); };
  const auto most = static_cast<std::int64_t>(kMostFrameBytes + 64);
  zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof most);
  set(ZMQ_HEARTBEAT_IVL, kHeartbeatMs);
  set(ZMQ_HEARTBEAT_TIMEOUT, kLostAfterMs);
  set(ZMQ_HEARTBEAT_TTL, kLostAfterMs + kHeartbeatMs);
  set(ZMQ_HANDSHAKE_IVL, kLostAfterMs);
  set(ZMQ_RECONNECT_IVL, -1);  // what was in flight is lost: the ranks start anew
  set(ZMQ_RCVHWM, 16);
  set(ZMQ_SNDHWM, 16);
  set(ZMQ_LINGER, 1000);
  set(ZMQ_IPV6, 1);
  return ZmqSocket(socket);
}
ZmqSocket::~ZmqSocket() {
  if (socket_ != nullptr) zmq_close(socket_);
}

bool HostPort::loopback() const { return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0; }

Expected<HostPort> parse_host_port(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  HostPort parsed;
  if (colon != std::string::npos) {
    parsed.host = text.substr(0, colon);
    if (parsed.host.size() > 2 && parsed.host.front() == '[' && parsed.host.back() == ']')
      parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
    const char* const end = text.data() + text.size();
    const auto [last, failure] = std::from_chars(text.data() + colon + 1, end, parsed.port);
    const bool named = !parsed.host.empty() && std::ranges::all_of(parsed.host, [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
    });
    if (named && failure == std::errc() && last == end && parsed.port >= 0 && parsed.port <= 65535) return parsed;
  }
  return Error{ErrorCode::kUsage, fmt::format("'{}' is no address", text), "", "HOST:PORT, as in 192.168.1.2:7070"};
}

Expected<void> Link::send_message(std::span<const std::byte> bytes) {
  const std::uint64_t size = bytes.size();
  DLLM_CHECK_OK(send(FrameKind::kData, std::as_bytes(std::span(&size, 1))));
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kMostFrameBytes)))
    DLLM_CHECK_OK(send(FrameKind::kData, bytes.first(std::min(bytes.size(), kMostFrameBytes))));
  return {};
}

Expected<void> Link::next_data(std::vector<std::byte>& bytes) {
  for (;;) {
    Frame frame;
    DLLM_TRY(const bool came, receive(frame, kHeartbeatMs));
    // A peer that is gone is noticed when something is sent to it.
    if (!came) DLLM_CHECK_OK(send(FrameKind::kPing, {}));
    if (!came || frame.kind == FrameKind::kPing) continue;
    if (frame.kind == FrameKind::kAbort)
      return Error{ErrorCode::kCancelled,
                   std::string(reinterpret_cast<const char*>(frame.bytes.data()), frame.bytes.size()), name(), ""};
    if (frame.kind != FrameKind::kData)
      return Error{ErrorCode::kIo, "sent something out of order", name(), "start all ranks with the same version"};
    bytes = std::move(frame.bytes);
    return {};
  }
}

Expected<std::vector<std::byte>> Link::receive_message(std::uint64_t most) {
  std::vector<std::byte> piece, message;
  DLLM_CHECK_OK(next_data(piece));
  std::uint64_t size = 0;
  if (piece.size() != sizeof size)
    return Error{ErrorCode::kIo, "sent something out of order", name(), "start all ranks with the same version"};
  std::memcpy(&size, piece.data(), sizeof size);
  if (size > most)
    return Error{ErrorCode::kIo, fmt::format("sends {} bytes, {} at most were expected", size, most), name(),
                 "start all ranks with the same version and model"};
  while (message.size() < size) {
    DLLM_CHECK_OK(next_data(piece));
    if (piece.empty() || piece.size() > size - message.size())
      return Error{ErrorCode::kIo, "sent something out of order", name(), "start all ranks with the same version"};
    message.insert(message.end(), piece.begin(), piece.end());
  }
  return message;
}

Expected<bool> receive_frame(void* socket, bool with_identity, int milliseconds, std::string& identity, Frame& frame) {
  zmq_pollitem_t item{socket, 0, ZMQ_POLLIN, 0};
  const int ready = zmq_poll(&item, 1, milliseconds);
  if (ready == 0 || (ready < 0 && zmq_errno() == EINTR)) return false;
  if (ready < 0) return Error{ErrorCode::kIo, "cannot receive: " + zmq_text(), "ranks", ""};
  std::vector<std::vector<std::byte>> parts;
  for (bool more = true; more;) {
    zmq_msg_t message;
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, socket, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&message);
      return false;
    }
    const auto* const at = static_cast<const std::byte*>(zmq_msg_data(&message));
    // Of a message of many parts, which no rank sends, only the first are kept.
    if (parts.size() < 3) parts.emplace_back(at, at + zmq_msg_size(&message));
    more = zmq_msg_more(&message) != 0;
    zmq_msg_close(&message);
  }
  if (parts.size() != (with_identity ? 2U : 1U) || parts.back().empty()) return false;
  if (with_identity) identity.assign(reinterpret_cast<const char*>(parts[0].data()), parts[0].size());
  const auto kind = static_cast<std::uint8_t>(parts.back().front());
  if (kind < static_cast<std::uint8_t>(FrameKind::kHello) || kind > static_cast<std::uint8_t>(FrameKind::kPing))
    return false;
  frame.kind = static_cast<FrameKind>(kind);
  frame.bytes.assign(parts.back().begin() + 1, parts.back().end());
  return true;
}

namespace {

/// Sends a frame when the socket takes it. lost(): whether the peer is gone, asked now and then.
template <class Lost>
Expected<void> send_frame(void* socket, const std::string* identity, FrameKind kind, std::span<const std::byte> bytes,
                          const std::string& name, const Lost& lost) {
  std::vector<std::byte> whole{static_cast<std::byte>(kind)};
  whole.insert(whole.end(), bytes.begin(), bytes.end());
  for (;;) {
    const bool addressed =
        identity == nullptr || zmq_send(socket, identity->data(), identity->size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0;
    if (addressed && zmq_send(socket, whole.data(), whole.size(), ZMQ_DONTWAIT) >= 0) return {};
    // Nobody reads pings while he computes; when his queue is full of them, one more says nothing.
    if (zmq_errno() == EAGAIN && kind == FrameKind::kPing) return {};
    if (zmq_errno() != EAGAIN || lost()) return Error{ErrorCode::kIo, "is lost: " + zmq_text(), name, kLookThere};
    zmq_pollitem_t item{socket, 0, ZMQ_POLLOUT, 0};
    zmq_poll(&item, 1, kHeartbeatMs);
  }
}

/// Rank 0's link to one worker.
class WorkerLink final : public Link {
 public:
  WorkerLink(ZmqSocket socket, ZmqSocket monitor, std::string name)
      : socket_(std::move(socket)), monitor_(std::move(monitor)), name_(std::move(name)) {}
  ~WorkerLink() override { zmq_socket_monitor(socket_.get(), nullptr, 0); }

  const std::string& name() const override { return name_; }

  Expected<void> send(FrameKind kind, std::span<const std::byte> bytes) override {
    if (lost()) return gone();
    return send_frame(socket_.get(), nullptr, kind, bytes, name_, [this] { return lost(); });
  }

  Expected<bool> receive(Frame& frame, int milliseconds) override {
    std::string nobody;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      zmq_pollitem_t items[] = {{socket_.get(), 0, ZMQ_POLLIN, 0}, {monitor_.get(), 0, ZMQ_POLLIN, 0}};
      zmq_poll(items, 2, std::max<long>(0, static_cast<long>(left.count())));
      if ((items[0].revents & ZMQ_POLLIN) != 0) return receive_frame(socket_.get(), false, 0, nobody, frame);
      if (lost()) return gone();
      if (left.count() <= 0) return false;
    }
  }

 private:
  Error gone() const { return {ErrorCode::kIo, "is lost: the connection has ended", name_, kLookThere}; }
  /// Whether ZeroMQ has reported the end of the connection.
  bool lost() {
    for (;;) {
      std::uint16_t event = 0;
      zmq_msg_t part;
      zmq_msg_init(&part);
      const bool came = zmq_msg_recv(&part, monitor_.get(), ZMQ_DONTWAIT) >= 0;
      if (came && zmq_msg_size(&part) >= sizeof event) std::memcpy(&event, zmq_msg_data(&part), sizeof event);
      while (came && zmq_msg_more(&part) != 0 && zmq_msg_recv(&part, monitor_.get(), 0) >= 0) {
      }
      zmq_msg_close(&part);
      lost_ = lost_ || (came && event != 0);
      if (!came) return lost_;
    }
  }

  ZmqSocket socket_, monitor_;
  std::string name_;
  bool lost_ = false;
};

/// A worker's link to rank 0, on the socket where it listens.
class LeaderLink final : public Link {
 public:
  LeaderLink(void* socket, std::string identity) : socket_(socket), identity_(std::move(identity)) {}

  const std::string& name() const override { return name_; }
  Expected<void> send(FrameKind kind, std::span<const std::byte> bytes) override {
    return send_frame(socket_, &identity_, kind, bytes, name_, [] { return false; });
  }
  Expected<bool> receive(Frame& frame, int milliseconds) override {
    std::string sender;
    DLLM_TRY(const bool came, receive_frame(socket_, true, milliseconds, sender, frame));
    return came && sender == identity_;  // strangers may knock meanwhile, but are not heard
  }

 private:
  void* socket_;
  std::string identity_, name_ = "rank 0";
};

}  // namespace

Expected<std::unique_ptr<Link>> connect_link(const ZmqContext& context, const std::string& address, int rank) {
  DLLM_TRY(const HostPort at, parse_host_port(address));
  DLLM_TRY(ZmqSocket socket, ZmqSocket::make(context, ZMQ_DEALER));
  DLLM_TRY(ZmqSocket monitor, ZmqSocket::make(context, ZMQ_PAIR));
  const std::string events = fmt::format("inproc://rank-{}-{}", rank, fmt::ptr(socket.get()));
  if (zmq_socket_monitor(socket.get(), events.c_str(), ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED) < 0 ||
      zmq_connect(monitor.get(), events.c_str()) < 0)
    return Error{ErrorCode::kResource, "no monitor: " + zmq_text(), "ranks", ""};
  if (zmq_connect(socket.get(), at.text().c_str()) < 0)
    return Error{ErrorCode::kIo, "cannot connect: " + zmq_text(), address, "HOST:PORT of a dllm worker"};
  return std::unique_ptr<Link>(
      new WorkerLink(std::move(socket), std::move(monitor), fmt::format("rank {} ({})", rank, address)));
}

std::unique_ptr<Link> peer_link(void* socket, std::string identity) {
  return std::make_unique<LeaderLink>(socket, std::move(identity));
}

}  // namespace dllm
