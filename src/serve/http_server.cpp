// The only file, with http_connection-inl.h and http_send-inl.h, that includes Boost: it takes most of this module's
// compile time.
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/signal_set.hpp>
#include <set>

#include "base/os_sockets.h"
#include "base/system_error.h"
#include "base/try.h"
#include "serve/http_send-inl.h"

namespace dllm::serve {
namespace {

#if defined(BOOST_ASIO_HAS_LOCAL_SOCKETS)
using UnixSocket = asio::local::stream_protocol;
#endif

PeerName peer_of(const tcp::socket& socket) {
  error_code error;
  const tcp::endpoint end = socket.remote_endpoint(error);
  if (error) return {};
  const asio::ip::address address = end.address();
  PeerName name{fmt::format("{}:{}", address.to_string(), end.port()), address.to_string()};
  // Whoever has an IPv6 address usually has all those of its /64.
  if (address.is_v6() && !address.is_loopback() && !address.to_v6().is_v4_mapped()) {
    auto bytes = address.to_v6().to_bytes();
    std::fill(bytes.begin() + 8, bytes.end(), std::uint8_t{0});
    name.client = asio::ip::address_v6(bytes).to_string() + "/64";
  }
  return name;
}

#if defined(BOOST_ASIO_HAS_LOCAL_SOCKETS)

PeerName peer_of(UnixSocket::socket& socket) {
  const auto who = peer_process(socket.native_handle());
  if (!who) return {"unix", "unix"};
  return {fmt::format("unix:{}:{}", who->user, who->process), fmt::format("unix:{}", who->user)};
}

/// A socket file that nobody listens on is left from a server that was killed. Errors: kIo (it is another file, or in
/// use).
Expected<void> remove_stale_socket(const std::string& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) return {};
  if (!S_ISSOCK(status.st_mode)) return Error{ErrorCode::kIo, "the file exists and is no socket", path, ""};
  asio::io_context io;
  UnixSocket::socket probe(io);
  error_code error;
  probe.connect(UnixSocket::endpoint(path), error);
  if (!error) return Error{ErrorCode::kIo, "another server listens on the socket", path, "give another --socket"};
  if (error == asio::error::connection_refused) ::unlink(path.c_str());
  return {};
}

#endif

class BeastServer final : public HttpServer, private ConnectionOwner {
 public:
  explicit BeastServer(Options options) : options_(std::move(options)) {}
  ~BeastServer() override {
    ending_ = true;
    if (bound_) ::unlink(options_.socket.c_str());
  }
  Expected<void> bind();

  std::uint16_t port() const override { return bound_ ? std::uint16_t{0} : acceptor_.local_endpoint().port(); }
  void run() override { io_.run(); }
  void drain() override;
  void abort() override { io_.stop(); }
  std::size_t connections() const override { return count_; }

 private:
  const Options& options() const override { return options_; }
  bool draining() const override { return draining_; }
  void joined(Connection* connection) override;
  void left(Connection* connection) override;
  Expected<void> bind_address();
  Expected<void> bind_socket();
  template <class Acceptor>
  void accept(Acceptor& acceptor);
  void make_room();
  void wait_for_signal(bool again);
  void look_after_clients();

  Options options_;
  // Handlers left when io_ is destroyed destroy their connections, which leave the set.
  std::set<Connection*> open_;
  std::atomic<std::size_t> count_{0};
  bool draining_ = false, ending_ = false, bound_ = false;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  tcp::acceptor acceptor_{io_};
#if defined(BOOST_ASIO_HAS_LOCAL_SOCKETS)
  UnixSocket::acceptor unix_acceptor_{io_};
#endif
  asio::signal_set signals_{io_};
  asio::steady_timer retry_{io_}, look_{io_};
};

Expected<void> BeastServer::bind_address() {
  error_code error;
  tcp::resolver resolver(io_);
  const auto found = resolver.resolve(options_.host, std::to_string(options_.port), tcp::resolver::passive, error);
  const auto failed = [&](const char* what) {
    return Error{ErrorCode::kIo, fmt::format("{}: {}", what, error.message()),
                 fmt::format("{}:{}", options_.host, options_.port), "give another --host or --port"};
  };
  if (error || found.empty()) return failed("there is no such address");
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  if (error == asio::error::no_descriptors) return system_error("cannot listen", EMFILE, "");
  if (!error && kAsksToReuse) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return failed("cannot listen");
  return {};
}

#if defined(BOOST_ASIO_HAS_LOCAL_SOCKETS)

Expected<void> BeastServer::bind_socket() {
  DLLM_CHECK_OK(remove_stale_socket(options_.socket));
  if (options_.socket.size() >= sizeof(sockaddr_un::sun_path))
    return Error{ErrorCode::kUsage,
                 fmt::format("a socket's path has at most {} bytes", sizeof(sockaddr_un::sun_path) - 1), "--socket",
                 "give a shorter one"};
  error_code error;
  unix_acceptor_.open(UnixSocket(), error);
  if (!error) unix_acceptor_.bind(UnixSocket::endpoint(options_.socket), error);
  if (!error) bound_ = true;
  if (!error) unix_acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return system_error("cannot listen", error.value(), options_.socket);
  return {};
}

#else

Expected<void> BeastServer::bind_socket() {
  return Error{ErrorCode::kUnsupported, "this program has no Unix sockets", "--socket", "use --host and --port"};
}

#endif

Expected<void> BeastServer::bind() {
  DLLM_CHECK_OK(options_.socket.empty() ? bind_address() : bind_socket());
  error_code error;
  for (const int signal : {SIGTERM, SIGINT}) {
    signals_.add(signal, error);
    if (error) return system_error("cannot wait for signals", error.value(), "");
  }
  wait_for_signal(false);
  look_after_clients();
#if defined(BOOST_ASIO_HAS_LOCAL_SOCKETS)
  if (bound_) {
    accept(unix_acceptor_);
    return {};
  }
#endif
  accept(acceptor_);
  return {};
}

void BeastServer::wait_for_signal(bool again) {
  signals_.async_wait([this, again](error_code error, int) {
    if (error) return;
    if (options_.on_signal) options_.on_signal(again);
    wait_for_signal(true);
  });
}

void BeastServer::look_after_clients() {
  look_.expires_after(std::chrono::milliseconds(250));
  look_.async_wait([this](error_code stopped) {
    if (stopped) return;
    const std::set<Connection*> open = open_;
    for (Connection* connection : open)
      if (open_.contains(connection)) connection->check_client();
    look_after_clients();
  });
}

/// Closes the connection that has been idle for the longest time: a client that holds many shuts no other out.
void BeastServer::make_room() {
  Connection* longest = nullptr;
  for (Connection* connection : open_)
    if (connection->idle_since() && (longest == nullptr || *connection->idle_since() < *longest->idle_since()))
      longest = connection;
  if (longest != nullptr) longest->close_if_idle();
}

template <class Acceptor>
void BeastServer::accept(Acceptor& acceptor) {
  acceptor.async_accept([this, &acceptor](error_code error, typename Acceptor::protocol_type::socket socket) {
    if (draining_ || error == asio::error::operation_aborted) return;
    if (error) {  // no descriptors left: retry when some are free
      make_room();
      retry_.expires_after(std::chrono::milliseconds(100));
      retry_.async_wait([this, &acceptor](error_code stopped) {
        if (!stopped) accept(acceptor);
      });
      return;
    }
    error_code ignored;
    if constexpr (std::is_same_v<Acceptor, tcp::acceptor>) socket.set_option(tcp::no_delay(true), ignored);
    PeerName peer = peer_of(socket);
    if (open_.size() >= options_.limits.connections) make_room();
    // Closed ones leave when their handlers have run, so one more than allowed may be open meanwhile.
    const auto still = std::ranges::count_if(open_, [](const Connection* one) { return one->is_open(); });
    const bool full = static_cast<std::size_t>(still) >= options_.limits.connections;
    ConnectionOwner& owner = *this;
    const auto connection = std::make_shared<Connection>(owner, Socket(std::move(socket)), std::move(peer));
    if (full)
      connection->refuse(503, "too many connections");
    else
      connection->read_head();
    accept(acceptor);
  });
}

void BeastServer::drain() {
  asio::post(io_, [this] {
    if (std::exchange(draining_, true)) return;
    error_code ignored;
    acceptor_.close(ignored);
#if defined(BOOST_ASIO_HAS_LOCAL_SOCKETS)
    unix_acceptor_.close(ignored);
#endif
    const std::set<Connection*> open = open_;
    for (Connection* connection : open) connection->close_if_idle();
    if (open_.empty()) io_.stop();
  });
}

void BeastServer::joined(Connection* connection) {
  open_.insert(connection);
  count_ = open_.size();
}

void BeastServer::left(Connection* connection) {
  open_.erase(connection);
  count_ = open_.size();
  if (draining_ && !ending_ && open_.empty()) io_.stop();
}

}  // namespace

Expected<std::unique_ptr<HttpServer>> HttpServer::listen(Options options) {
  try {
    auto server = std::make_unique<BeastServer>(std::move(options));
    DLLM_CHECK_OK(server->bind());
    return std::unique_ptr<HttpServer>(std::move(server));
  } catch (const boost::system::system_error& error) {  // Asio's own descriptors: epoll, eventfd, timerfd, a pipe
    return system_error("cannot wait for connections", error.code().value(), "");
  }
}

}  // namespace dllm::serve
