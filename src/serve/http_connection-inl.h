#pragma once

// The connections of http_server.cpp, the only file that includes this; http_send-inl.h holds their answers.
#include <utility>  // before Beast 1.74, which does not include it under GCC 12

#include <boost/asio/dispatch.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <limits>
#include <memory>
#include <new>
#include <optional>

#include "base/os_sockets.h"
#include "serve/http.h"
#include "serve/http_head.h"

namespace dllm::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Socket = asio::generic::stream_protocol::socket;  ///< TCP's or a Unix one
using boost::system::error_code;

using Clock = std::chrono::steady_clock;

Clock::duration duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// How a client is called in logs, and in queues.
struct PeerName {
  std::string full, client;
};

class Connection;

/// The state that connections share with their server.
class ConnectionOwner {
 public:
  virtual const HttpServer::Options& options() const = 0;
  virtual bool draining() const = 0;
  virtual void joined(Connection* connection) = 0;
  virtual void left(Connection* connection) = 0;

 protected:
  ~ConnectionOwner() = default;
};

/// One client's connection: requests one after the other. Runs entirely in the server's thread.
class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionOwner& server, Socket socket, PeerName peer)
      : server_(server),
        stream_(std::move(socket)),
        ping_(stream_.get_executor()),
        buffer_(server.options().limits.header + kMostBuffered),
        peer_(std::move(peer)) {
    server_.joined(this);
  }
  ~Connection() { server_.left(this); }

  auto executor() { return stream_.get_executor(); }
  const std::atomic<std::size_t>& backlog() const { return backlog_; }

  void read_head();
  void refuse(int status, const std::string& message);
  bool is_open() const { return open_; }
  /// Between two requests a connection can be closed safely.
  void close_if_idle() {
    if (idle_) close();
  }
  /// Since when nothing of a request has come; nullopt: a request is read or answered.
  std::optional<Clock::time_point> idle_since() const {
    return idle_ && open_ ? std::optional(idle_since_) : std::nullopt;
  }
  /// Notices that the client has gone; called now and then.
  void check_client();

  // Calls from exchange `number`; ignored if it has ended.
  void reply(std::uint64_t number, HttpResponse response);
  void begin_stream(std::uint64_t number, HttpResponse head, std::string keep_alive);
  void write(std::uint64_t number, std::string data);
  void end(std::uint64_t number);
  void on_abandoned(std::uint64_t number, std::function<void()> call);
  void dropped(std::uint64_t number) {
    if (number == number_ && answering_) abandon();
  }

 private:
  void read_more_head();
  void on_raw_head(std::size_t size);
  void on_head(error_code error);
  void read_body();
  void on_body(error_code error);
  HttpRequest take_request();
  void watch();
  void probe();
  void abandon();
  void send(std::string data);
  void send_next();
  void on_sent(error_code error);
  void keep_alive();
  void next_request();
  void linger();
  void discard();
  void close() {
    error_code ignored;
    open_ = false;
    ping_.cancel();
    stream_.socket().close(ignored);
  }
  std::string head_of(const HttpResponse& response, bool chunked) const;
  bool refuse_if_too_long(error_code error);

  /// Of bodies and pipelined requests, besides a header: a chunk's extensions may have any length.
  static constexpr std::size_t kMostBuffered = 128U << 10U;

  ConnectionOwner& server_;
  beast::basic_stream<asio::generic::stream_protocol> stream_;
  asio::steady_timer ping_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  PeerName peer_;
  std::string ping_text_;
  HttpHead head_;
  std::size_t searched_ = 0;  ///< bytes of the buffer in which the header's end is not
  Clock::time_point idle_since_ = Clock::now(), next_probe_;
  Clock::duration probe_pause_{};
  std::vector<char> scratch_;
  std::deque<std::string> out_;  ///< the first is being sent
  std::atomic<std::size_t> backlog_{0};
  std::uint64_t number_ = 0;  ///< of the current exchange
  bool answering_ = false;    ///< the request is not answered yet
  bool idle_ = true;          ///< no request has begun
  bool open_ = true;          ///< the socket is
  bool streaming_ = false, chunked_ = false, head_only_ = false, keep_ = false, dead_ = false;
  std::function<void()> abandoned_;
};

class BeastExchange final : public Exchange {
 public:
  BeastExchange(std::shared_ptr<Connection> connection, std::uint64_t number, HttpRequest request)
      : connection_(std::move(connection)), number_(number), request_(std::move(request)) {}
  /// The connection's last owner destroys it, which only the server's thread may do: so the reference goes there too.
  ~BeastExchange() override {
    const auto executor = connection_->executor();
    asio::post(executor, [c = std::move(connection_), n = number_, dropped = !ended_] {
      if (dropped) c->dropped(n);
    });
  }

  const HttpRequest& request() const override { return request_; }
  void reply(HttpResponse response) override {
    ended_ = true;
    in_thread([n = number_, r = std::move(response)](Connection& c) mutable { c.reply(n, std::move(r)); });
  }
  void begin_stream(HttpResponse head, std::string keep_alive) override {
    in_thread([n = number_, h = std::move(head), k = std::move(keep_alive)](Connection& c) mutable {
      c.begin_stream(n, std::move(h), std::move(k));
    });
  }
  void write(std::string data) override {
    if (data.empty()) return;
    in_thread([n = number_, d = std::move(data)](Connection& c) mutable { c.write(n, std::move(d)); });
  }
  void end() override {
    ended_ = true;
    in_thread([n = number_](Connection& c) { c.end(n); });
  }
  std::size_t backlog() const override { return connection_->backlog(); }
  void on_abandoned(std::function<void()> call) override {
    in_thread([n = number_, f = std::move(call)](Connection& c) mutable { c.on_abandoned(n, std::move(f)); });
  }

 private:
  /// At once in the server's thread. Were these posted too, they would wait for the end of the running handler, and a
  /// later call of another thread would come first: two callbacks of on_abandoned() would change places.
  template <class F>
  void in_thread(F call) {
    asio::dispatch(connection_->executor(), [c = connection_, f = std::move(call)]() mutable { f(*c); });
  }

  std::shared_ptr<Connection> connection_;
  std::uint64_t number_;
  HttpRequest request_;
  std::atomic<bool> ended_{false};
};

// --- the connection: reading

void Connection::read_head() {
  head_ = {};
  searched_ = 0;
  idle_ = true;
  idle_since_ = Clock::now();
  stream_.expires_after(duration(server_.options().limits.idle_seconds));
  read_more_head();
}

/// The header is read whole and checked before Beast sees it: Beast repairs what read_head() refuses.
void Connection::read_more_head() {
  const auto text = [this] {
    const auto data = buffer_.data();
    return std::string_view(static_cast<const char*>(data.data()), data.size());
  };
  while (text().starts_with("\r\n")) buffer_.consume(2), searched_ = 0;  // RFC 9112, 2.2: some clients add lines
  const std::size_t end = end_of_head(text(), searched_), limit = server_.options().limits.header;
  if (std::min(end, text().size()) > limit) {
    idle_ = false;
    return refuse(431, fmt::format("the header is longer than {} bytes", limit));
  }
  if (end != std::string_view::npos) return on_raw_head(end);
  searched_ = text().size();
  stream_.async_read_some(buffer_.prepare(std::min<std::size_t>(4096, limit + kMostBuffered - buffer_.size())),
                          [self = shared_from_this()](error_code error, std::size_t size) {
                            if (error) return self->close();
                            self->buffer_.commit(size);
                            self->read_more_head();
                          });
}

void Connection::on_raw_head(std::size_t size) {
  idle_ = false;
  const std::string_view text(static_cast<const char*>(buffer_.data().data()), size);
  if (const auto error = dllm::serve::read_head(text, head_)) return refuse(error->status, error->message);
  parser_.emplace();
  parser_->header_limit(std::numeric_limits<std::uint32_t>::max());
  parser_->body_limit(server_.options().limits.body);
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](error_code error, std::size_t) { self->on_head(error); });
}

bool Connection::refuse_if_too_long(error_code error) {
  const HttpLimits& limits = server_.options().limits;
  if (error != http::error::body_limit) return false;
  refuse(413, fmt::format("the body is longer than {} bytes", limits.body));
  return true;
}

void Connection::on_head(error_code error) {
  if (error == http::error::end_of_stream || error == asio::error::operation_aborted || error == beast::error::timeout)
    return close();
  if (refuse_if_too_long(error)) return;
  if (error.category() == http::make_error_code(http::error::bad_version).category())
    return refuse(400, "this is not HTTP: " + error.message());
  if (error) return close();
  if (!beast::iequals(parser_->get()[http::field::expect], "100-continue")) return read_body();
  auto text = std::make_shared<std::string>("HTTP/1.1 100 Continue\r\n\r\n");
  asio::async_write(stream_, asio::buffer(*text), [self = shared_from_this(), text](error_code failed, std::size_t) {
    if (failed) return self->close();
    self->read_body();
  });
}

void Connection::read_body() {
  stream_.expires_after(duration(server_.options().limits.body_seconds));
  http::async_read(stream_, buffer_, *parser_,
                   [self = shared_from_this()](error_code error, std::size_t) { self->on_body(error); });
}

void Connection::on_body(error_code error) {
  if (refuse_if_too_long(error)) return;
  if (error == beast::error::timeout) return refuse(408, "the body took too long");
  if (error.category() == http::make_error_code(http::error::bad_version).category())
    return refuse(400, "the body is not what the header says: " + error.message());
  if (error) return close();
  stream_.expires_never();
  HttpRequest request = take_request();
  ++number_;
  answering_ = true;
  auto exchange = std::make_shared<BeastExchange>(shared_from_this(), number_, std::move(request));
  watch();
  try {
    server_.options().handler(exchange);
  } catch (const std::bad_alloc&) {
    exchange->reply(server_.options().refusal(503, "out of memory"));
  }
}

HttpRequest Connection::take_request() {
  auto& message = parser_->get();
  HttpRequest request;
  request.method = std::move(head_.method);
  request.path = std::move(head_.path);
  request.query = std::move(head_.query);
  request.headers = std::move(head_.fields);
  request.body = std::move(message.body());
  request.peer = peer_.full;
  request.client = peer_.client;
  keep_ = message.keep_alive();
  chunked_ = message.version() >= 11;
  head_only_ = message.method() == http::verb::head;
  parser_.reset();
  return request;
}

/// Notices at once that the client has ended its sending. If it has sent more, this does not show: check_client() does.
void Connection::watch() {
  probe_pause_ = std::chrono::seconds(1);
  next_probe_ = Clock::now();
  if (buffer_.size() > 0) return;
  stream_.socket().async_wait(Socket::wait_read, [self = shared_from_this(), n = number_](error_code error) {
    if (!error && n == self->number_) self->check_client();
  });
}

/// A client that has ended its sending may still read (RFC 9112, 9.6), or have closed its socket: TCP tells the one
/// from the other only when it is sent something. A closed Unix socket is known.
void Connection::check_client() {
  if (!answering_ || dead_ || !open_) return;
  const PeerState state = peer_state(static_cast<std::uintptr_t>(stream_.socket().native_handle()));
  if (state == PeerState::kGone) return abandon();
  if (state == PeerState::kSends) return;
  if (Clock::now() >= next_probe_) probe();
}

/// Sends what no client minds, less and less often: a stream's keep-alive text, else an interim response (RFC 9110,
/// 15.2; a 100, because some clients take any other 1xx for the answer). A client that has gone resets the connection.
void Connection::probe() {
  next_probe_ = Clock::now() + probe_pause_;
  probe_pause_ *= 2;
  if (!out_.empty()) return;
  if (streaming_)
    write(number_, ping_text_);
  else if (chunked_)
    send("HTTP/1.1 100 Continue\r\n\r\n");
}

void Connection::abandon() {
  if (dead_) return;
  dead_ = true;
  answering_ = false;
  out_.clear();
  backlog_ = 0;
  if (const auto call = std::exchange(abandoned_, {})) call();
  close();
}

void Connection::on_abandoned(std::uint64_t number, std::function<void()> call) {
  if (number != number_ || dead_)
    call();
  else if (answering_)
    abandoned_ = std::move(call);
}

}  // namespace
}  // namespace dllm::serve
