#include "ranks/link.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>
#include <new>
#include <utility>

#include "base/try.h"
#include "ranks/proof.h"

namespace dllm {

ZmqContext::ZmqContext() : context_(zmq_ctx_new()) {}
ZmqContext::~ZmqContext() {
  if (forks_ == fork_count()) zmq_ctx_term(context_);
}

std::string zmq_text() { return zmq_strerror(zmq_errno()); }

Expected<ZmqSocket> ZmqSocket::make(const ZmqContext& context, int type) {
  void* const socket = zmq_socket(context.get(), type);
  if (socket == nullptr)
    return Error{ErrorCode::kResource, "no socket: " + zmq_text(), "ranks", "too many open files? see ulimit -n"};
  const auto set = [socket](int option, int value) { zmq_setsockopt(socket, option, &value, sizeof value); };
  const auto most = static_cast<std::int64_t>(kMostFrameBytes + 64);
  zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof most);
  set(ZMQ_HEARTBEAT_IVL, kHeartbeatMs);
  set(ZMQ_HEARTBEAT_TIMEOUT, kLostAfterMs);
  set(ZMQ_HEARTBEAT_TTL, kLostAfterMs + kHeartbeatMs);
  set(ZMQ_HANDSHAKE_IVL, kLostAfterMs);
  set(ZMQ_RECONNECT_IVL, -1);  // what was in flight is lost: the ranks start anew
  set(ZMQ_RCVHWM, 0);          // see kHeartbeatMs
  set(ZMQ_SNDHWM, 16);
  set(ZMQ_LINGER, 1000);
  set(ZMQ_IPV6, 1);
  return ZmqSocket(socket);
}
ZmqSocket::~ZmqSocket() {
  if (socket_ != nullptr && forks_ == fork_count()) zmq_close(socket_);
}

void ZmqSocket::end_monitor() const {
  if (forks_ == fork_count()) zmq_socket_monitor(socket_, nullptr, 0);
}

Expected<void> ZmqSocket::protect(const std::string& key, bool listens) {
  if (zmq_has("curve") == 0)
    return Error{ErrorCode::kUnsupported, "this ZeroMQ encrypts nothing", "ranks", "install one with libsodium"};
  // The worker's secret follows from the key, and its public half is never sent: who does not know the key can neither
  // open a connection nor pretend to be a worker.
  DLLM_TRY(const Proof secret, prove(key, "curve of a worker", Nonce{}, Nonce{}, {}));
  constexpr std::size_t kText = 41;  // of 32 bytes, with the end
  std::array<char, kText> worker_secret{}, worker_public{}, own_secret{}, own_public{};
  zmq_z85_encode(worker_secret.data(), reinterpret_cast<const std::uint8_t*>(secret.data()), secret.size());
  bool done = zmq_curve_public(worker_public.data(), worker_secret.data()) == 0;
  const auto set = [&](int option, const std::array<char, kText>& text) {
    done = done && zmq_setsockopt(socket_, option, text.data(), text.size()) == 0;
  };
  if (listens) {
    const int yes = 1;
    done = done && zmq_setsockopt(socket_, ZMQ_CURVE_SERVER, &yes, sizeof yes) == 0;
    set(ZMQ_CURVE_SECRETKEY, worker_secret);
  } else {
    done = done && zmq_curve_keypair(own_public.data(), own_secret.data()) == 0;
    set(ZMQ_CURVE_SERVERKEY, worker_public);
    set(ZMQ_CURVE_PUBLICKEY, own_public);
    set(ZMQ_CURVE_SECRETKEY, own_secret);
  }
  if (done) return {};
  return Error{ErrorCode::kResource, "no keys for the connection: " + zmq_text(), "ranks", "is libsodium whole?"};
}

bool HostPort::loopback() const {
  in_addr four{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24U) == 127;
  return host == "localhost" || host == "::1";
}

Expected<HostPort> resolve(HostPort at) {
  if (at.host == "localhost") at.host = "127.0.0.1";
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  const int failure = ::getaddrinfo(at.host.c_str(), nullptr, &wanted, &found);
  if (failure != 0)
    return Error{ErrorCode::kIo, fmt::format("'{}' is not known here: {}", at.host, ::gai_strerror(failure)), "",
                 "an address of this machine, such as 0.0.0.0 for all of them"};
  std::array<char, NI_MAXHOST> number{};
  const int named =
      ::getnameinfo(found->ai_addr, found->ai_addrlen, number.data(), number.size(), nullptr, 0, NI_NUMERICHOST);
  ::freeaddrinfo(found);
  if (named != 0) return Error{ErrorCode::kIo, "the address has no number", at.host, "give the number"};
  at.host = number.data();
  return at;
}

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

Expected<void> Link::send_message(std::span<const std::byte> bytes, std::span<const std::byte> more) {
  const std::uint64_t size = bytes.size() + more.size();
  DLLM_CHECK_OK(send(FrameKind::kData, std::as_bytes(std::span(&size, 1))));
  for (std::span<const std::byte> rest : {bytes, more})
    for (; !rest.empty(); rest = rest.subspan(std::min(rest.size(), kMostFrameBytes)))
      DLLM_CHECK_OK(send(FrameKind::kData, rest.first(std::min(rest.size(), kMostFrameBytes))));
  return {};
}

Expected<void> Link::next_data(std::vector<std::byte>& bytes) {
  for (;;) {
    Frame frame;
    DLLM_TRY(const bool came, receive(frame, kHeartbeatMs));
    if (!came || frame.kind == FrameKind::kProbe) continue;
    if (frame.kind == FrameKind::kAbort)
      return Error{ErrorCode::kCancelled,
                   std::string(reinterpret_cast<const char*>(frame.bytes.data()), frame.bytes.size()), name(), ""};
    if (frame.kind != FrameKind::kData)
      return Error{ErrorCode::kIo, "sent something out of order", name(), "start all ranks with the same version"};
    bytes = std::move(frame.bytes);
    return {};
  }
}

Expected<std::vector<std::byte>> Link::receive_message(std::uint64_t most, double* waited_s) {
  std::vector<std::byte> piece, message;
  const auto start = std::chrono::steady_clock::now();
  DLLM_CHECK_OK(next_data(piece));
  if (waited_s != nullptr) *waited_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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
    if (piece.size() == size) return piece;
    message.insert(message.end(), piece.begin(), piece.end());
  }
  return message;
}

Expected<bool> receive_frame(void* socket, bool with_identity, int milliseconds, std::string& identity, Frame& frame) {
  zmq_pollitem_t item{socket, 0, ZMQ_POLLIN, 0};
  const int ready = zmq_poll(&item, 1, milliseconds);
  if (ready == 0 || (ready < 0 && zmq_errno() == EINTR)) return false;
  if (ready < 0) return Error{ErrorCode::kIo, "cannot receive: " + zmq_text(), "ranks", "start all ranks again"};
  const std::size_t wanted = with_identity ? 2 : 1;
  std::size_t parts = 0;
  std::uint8_t kind = 0;
  for (bool more = true; more; ++parts) {
    zmq_msg_t message;
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, socket, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&message);
      return false;
    }
    const std::span at(static_cast<const std::byte*>(zmq_msg_data(&message)), zmq_msg_size(&message));
    if (with_identity && parts == 0) identity.assign(reinterpret_cast<const char*>(at.data()), at.size());
    if (parts == wanted - 1 && !at.empty()) {
      kind = static_cast<std::uint8_t>(at.front());
      frame.bytes.assign(at.begin() + 1, at.end());
    }
    more = zmq_msg_more(&message) != 0;
    zmq_msg_close(&message);
  }
  if (parts != wanted) return false;
  if (kind < static_cast<std::uint8_t>(FrameKind::kHello) || kind > static_cast<std::uint8_t>(FrameKind::kProbe))
    return false;
  frame.kind = static_cast<FrameKind>(kind);
  return true;
}

namespace {

/// A frame, which ZeroMQ takes over when it sends it.
class FrameMessage {
 public:
  FrameMessage(FrameKind kind, std::span<const std::byte> bytes) {
    if (zmq_msg_init_size(&message_, 1 + bytes.size()) < 0) throw std::bad_alloc();
    auto* const at = static_cast<std::byte*>(zmq_msg_data(&message_));
    *at = static_cast<std::byte>(kind);
    std::ranges::copy(bytes, at + 1);
  }
  FrameMessage(const FrameMessage&) = delete;
  FrameMessage& operator=(const FrameMessage&) = delete;
  ~FrameMessage() { zmq_msg_close(&message_); }

  zmq_msg_t* get() { return &message_; }

 private:
  zmq_msg_t message_{};
};

/// Whether the socket takes it now; else zmq_errno() says why not.
bool try_send(void* socket, const std::string* identity, FrameMessage& whole) {
  const bool addressed =
      identity == nullptr || zmq_send(socket, identity->data(), identity->size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0;
  return addressed && zmq_msg_send(whole.get(), socket, ZMQ_DONTWAIT) >= 0;
}

/// Sends a frame when the socket takes it. lost(): whether the peer is gone, asked now and then.
template <class Lost>
Expected<void> send_frame(void* socket, const std::string* identity, FrameKind kind, std::span<const std::byte> bytes,
                          const std::string& name, const Lost& lost) {
  FrameMessage whole(kind, bytes);
  for (;;) {
    if (try_send(socket, identity, whole)) return {};
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
  ~WorkerLink() override { socket_.end_monitor(); }

  const std::string& name() const override { return name_; }
  bool reached() const override { return connected_; }

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
      if ((items[0].revents & ZMQ_POLLIN) != 0) {
        // On a busy machine a frame may be read before the events of the connection that it came through.
        connected_ = greeted_ = true;
        return receive_frame(socket_.get(), false, 0, nobody, frame);
      }
      if (lost()) return gone();
      if (left.count() <= 0) return false;
    }
  }

 private:
  Error gone() const {
    // A refused greeting of ZeroMQ itself ends a connection that was there.
    if (connected_ && !greeted_)
      return {ErrorCode::kIo, "does not know the key, or is no dllm worker", name_, "give all ranks the same key file"};
    return {ErrorCode::kIo, "is lost: the connection has ended", name_, kLookThere};
  }
  /// Whether ZeroMQ has reported the end of the connection.
  bool lost() {
    while (const int event = next_event(monitor_)) {
      connected_ = connected_ || event == ZMQ_EVENT_CONNECTED;
      greeted_ = greeted_ || event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
      lost_ = lost_ || (event & (ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED)) != 0;
    }
    return lost_;
  }

  ZmqSocket socket_, monitor_;
  std::string name_;
  bool connected_ = false, greeted_ = false, lost_ = false;
};

/// A worker's link to rank 0, on the socket where it listens.
class LeaderLink final : public Link {
 public:
  LeaderLink(void* socket, const ZmqSocket& monitor, std::string identity)
      : socket_(socket), monitor_(monitor), identity_(std::move(identity)) {}

  const std::string& name() const override { return name_; }
  Expected<void> send(FrameKind kind, std::span<const std::byte> bytes) override {
    return send_frame(socket_, &identity_, kind, bytes, name_, [] { return false; });
  }
  Expected<bool> receive(Frame& frame, int milliseconds) override {
    std::string sender;
    DLLM_TRY(const bool came, receive_frame(socket_, true, milliseconds, sender, frame));
    if (came && sender == identity_) return true;
    // Others are not heard meanwhile, but who greets is told.
    if (came && frame.kind == FrameKind::kHello) send_once(socket_, sender, FrameKind::kBusy, {});
    if (!came) DLLM_CHECK_OK(check_leader());
    return false;
  }

 private:
  /// ZeroMQ says that someone has left, not who. Whether it was rank 0 shows when something is sent to it: once its
  /// queue is gone too, which is soon after.
  Expected<void> check_leader() {
    constexpr int kProbes = 3;
    while (next_event(monitor_) != 0) probes_ = kProbes;
    if (probes_ == 0) return {};
    --probes_;
    return send(FrameKind::kProbe, {});
  }

  void* socket_;
  const ZmqSocket& monitor_;
  std::string identity_, name_ = "rank 0";
  int probes_ = 0;
};

}  // namespace

Expected<ZmqSocket> make_monitor(const ZmqContext& context, const ZmqSocket& socket, int events) {
  DLLM_TRY(ZmqSocket monitor, ZmqSocket::make(context, ZMQ_PAIR));
  const std::string place = fmt::format("inproc://events-{}", fmt::ptr(socket.get()));
  if (zmq_socket_monitor(socket.get(), place.c_str(), events) < 0 || zmq_connect(monitor.get(), place.c_str()) < 0)
    return Error{ErrorCode::kResource, "no monitor: " + zmq_text(), "ranks", "too many open files? see ulimit -n"};
  return monitor;
}

int next_event(const ZmqSocket& monitor) {
  std::uint16_t event = 0;
  zmq_msg_t part;
  zmq_msg_init(&part);
  const bool came = zmq_msg_recv(&part, monitor.get(), ZMQ_DONTWAIT) >= 0;
  if (came && zmq_msg_size(&part) >= sizeof event) std::memcpy(&event, zmq_msg_data(&part), sizeof event);
  while (came && zmq_msg_more(&part) != 0 && zmq_msg_recv(&part, monitor.get(), 0) >= 0) {
  }
  zmq_msg_close(&part);
  return event;
}

void send_once(void* socket, const std::string& identity, FrameKind kind, std::span<const std::byte> bytes) {
  FrameMessage whole(kind, bytes);
  (void)try_send(socket, &identity, whole);
}

Expected<std::unique_ptr<Link>> connect_link(const ZmqContext& context, const std::string& address, int rank,
                                             const std::string& key) {
  DLLM_TRY(const HostPort at, parse_host_port(address));
  DLLM_TRY(ZmqSocket socket, ZmqSocket::make(context, ZMQ_DEALER));
  if (!key.empty()) DLLM_CHECK_OK(socket.protect(key, false));
  DLLM_TRY(ZmqSocket monitor, make_monitor(context, socket,
                                           ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                                               ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED));
  if (zmq_connect(socket.get(), at.text().c_str()) < 0)
    return Error{ErrorCode::kIo, "cannot connect: " + zmq_text(), address, "HOST:PORT of a dllm worker"};
  return std::unique_ptr<Link>(
      new WorkerLink(std::move(socket), std::move(monitor), fmt::format("rank {} ({})", rank, address)));
}

std::unique_ptr<Link> peer_link(void* socket, const ZmqSocket& monitor, std::string identity) {
  return std::make_unique<LeaderLink>(socket, monitor, std::move(identity));
}

}  // namespace dllm
