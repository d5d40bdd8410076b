// The only file, with http_connection-inl.h, that includes Boost: it takes most of this module's compile time.
#include "serve/http_connection-inl.h"

#include <boost/asio/signal_set.hpp>
#include <set>

#include "base/try.h"

namespace dllm::serve {
namespace {

class BeastServer final : public HttpServer, private ConnectionOwner {
 public:
  explicit BeastServer(Options options) : options_(std::move(options)) {}
  ~BeastServer() override { ending_ = true; }
  Expected<void> bind();

  std::uint16_t port() const override { return acceptor_.local_endpoint().port(); }
  void run() override { io_.run(); }
  void drain() override;
  void abort() override { io_.stop(); }
  std::size_t connections() const override { return count_; }

 private:
  const Options& options() const override { return options_; }
  bool draining() const override { return draining_; }
  void joined(Connection* connection) override;
  void left(Connection* connection) override;
  void accept();
  void wait_for_signal(bool again);

  Options options_;
  // Handlers left when io_ is destroyed destroy their connections, which leave the set.
  std::set<Connection*> open_;
  std::atomic<std::size_t> count_{0};
  bool draining_ = false, ending_ = false;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  tcp::acceptor acceptor_{io_};
  asio::signal_set signals_{io_};
  asio::steady_timer retry_{io_};
};

Expected<void> BeastServer::bind() {
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
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return failed("cannot listen");
  signals_.add(SIGTERM, error);
  signals_.add(SIGINT, error);
  wait_for_signal(false);
  accept();
  return {};
}

void BeastServer::wait_for_signal(bool again) {
  signals_.async_wait([this, again](error_code error, int) {
    if (error) return;
    if (options_.on_signal) options_.on_signal(again);
    wait_for_signal(true);
  });
}

void BeastServer::accept() {
  acceptor_.async_accept([this](error_code error, tcp::socket socket) {
    if (draining_ || error == asio::error::operation_aborted) return;
    if (error) {  // no descriptors left: retry when some are free
      retry_.expires_after(std::chrono::milliseconds(100));
      retry_.async_wait([this](error_code stopped) {
        if (!stopped) accept();
      });
      return;
    }
    const bool full = open_.size() >= options_.limits.connections;
    ConnectionOwner& owner = *this;
    const auto connection = std::make_shared<Connection>(owner, std::move(socket));
    if (full)
      connection->refuse(503, "too many connections");
    else
      connection->read_head();
    accept();
  });
}

void BeastServer::drain() {
  asio::post(io_, [this] {
    if (std::exchange(draining_, true)) return;
    error_code ignored;
    acceptor_.close(ignored);
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
  auto server = std::make_unique<BeastServer>(std::move(options));
  DLLM_CHECK_OK(server->bind());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace dllm::serve
