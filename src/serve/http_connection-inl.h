#pragma once

// The connections of http_server.cpp, the only file that includes this.
#include <utility>  // before Beast 1.74, which does not include it under GCC 12

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <deque>
#include <new>
#include <optional>

#include "serve/http.h"

namespace dllm::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

std::chrono::steady_clock::duration duration(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

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
  Connection(ConnectionOwner& server, tcp::socket socket)
      : server_(server), stream_(std::move(socket)), ping_(stream_.get_executor()) {
    error_code ignored;
    stream_.socket().set_option(tcp::no_delay(true), ignored);
    const auto end = stream_.socket().remote_endpoint(ignored);
    if (!ignored) peer_ = fmt::format("{}:{}", end.address().to_string(), end.port());
    server_.joined(this);
  }
  ~Connection() { server_.left(this); }

  auto executor() { return stream_.get_executor(); }
  const std::atomic<std::size_t>& backlog() const { return backlog_; }

  void read_head();
  void refuse(int status, const std::string& message);
  /// Between two requests a connection can be closed safely.
  void close_if_idle() {
    if (idle_) close();
  }

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
  void on_head(error_code error);
  void read_body();
  void on_body(error_code error);
  void watch();
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
    ping_.cancel();
    stream_.socket().close(ignored);
  }
  std::string head_of(const HttpResponse& response, bool chunked) const;
  bool refuse_if_too_long(error_code error);

  ConnectionOwner& server_;
  beast::tcp_stream stream_;
  asio::steady_timer ping_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::string peer_, ping_text_;
  std::vector<char> scratch_;
  std::deque<std::string> out_;  ///< the first is being sent
  std::atomic<std::size_t> backlog_{0};
  std::uint64_t number_ = 0;  ///< of the current exchange
  bool answering_ = false;    ///< the request is not answered yet
  bool idle_ = true;          ///< no request has begun
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
  template <class F>
  void in_thread(F call) {
    asio::post(connection_->executor(), [c = connection_, f = std::move(call)]() mutable { f(*c); });
  }

  std::shared_ptr<Connection> connection_;
  std::uint64_t number_;
  HttpRequest request_;
  std::atomic<bool> ended_{false};
};

// --- the connection: reading

void Connection::read_head() {
  parser_.emplace();
  parser_->header_limit(server_.options().limits.header);
  parser_->body_limit(server_.options().limits.body);
  idle_ = true;
  stream_.expires_after(duration(server_.options().limits.idle_seconds));
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](error_code error, std::size_t) { self->on_head(error); });
}

bool Connection::refuse_if_too_long(error_code error) {
  const HttpLimits& limits = server_.options().limits;
  if (error == http::error::header_limit)
    refuse(431, fmt::format("the header is longer than {} bytes", limits.header));
  else if (error == http::error::body_limit)
    refuse(413, fmt::format("the body is longer than {} bytes", limits.body));
  else
    return false;
  return true;
}

void Connection::on_head(error_code error) {
  if (error == http::error::end_of_stream || error == asio::error::operation_aborted || error == beast::error::timeout)
    return close();
  idle_ = false;
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
  auto& message = parser_->get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string_view target(message.target().data(), message.target().size());
  request.path = std::string(target.substr(0, target.find('?')));
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    request.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  request.body = std::move(message.body());
  request.peer = peer_;
  keep_ = message.keep_alive();
  chunked_ = message.version() >= 11;
  head_only_ = message.method() == http::verb::head;
  parser_.reset();
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

/// Notices a client that disconnects while its answer is generated. One that has sent more data counts as connected.
void Connection::watch() {
  if (buffer_.size() > 0) return;
  stream_.socket().async_wait(tcp::socket::wait_read, [self = shared_from_this(), n = number_](error_code error) {
    if (n != self->number_ || !self->answering_ || self->dead_) return;
    char byte = 0;
    const auto got = ::recv(self->stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0) return;
    if (!error && got < 0 && (errno == EAGAIN || errno == EINTR)) return self->watch();
    self->abandon();
  });
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

// --- the connection: writing

std::string Connection::head_of(const HttpResponse& response, bool chunked) const {
  const auto reason = http::obsolete_reason(static_cast<http::status>(response.status));
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nServer: dllm\r\n", response.status,
                                 std::string_view(reason.data(), reason.size()));
  if (!response.type.empty()) text += fmt::format("Content-Type: {}\r\n", response.type);
  for (const auto& [name, value] : response.headers) text += fmt::format("{}: {}\r\n", name, value);
  if (chunked) text += "Transfer-Encoding: chunked\r\n";
  // For an answer without a body this would be the length of the omitted body (RFC 9110, 8.6).
  const bool bare = response.status == 204 || response.status == 304;
  if (!streaming_ && !bare) text += fmt::format("Content-Length: {}\r\n", response.body.size());
  return text + (keep_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n");
}

void Connection::reply(std::uint64_t number, HttpResponse response) {
  if (number != number_ || !answering_) return;
  answering_ = false;
  abandoned_ = {};
  keep_ = keep_ && !server_.draining();
  std::string text = head_of(response, /*chunked=*/false);
  if (!head_only_) text += response.body;
  send(std::move(text));
}

/// Answers input that did not become a request; the rest of it is not read.
void Connection::refuse(int status, const std::string& message) {
  ++number_;
  answering_ = true;
  keep_ = false;
  reply(number_, server_.options().refusal(status, message));
}

void Connection::begin_stream(std::uint64_t number, HttpResponse head, std::string keep_alive_text) {
  if (number != number_ || !answering_) return;
  streaming_ = true;
  keep_ = keep_ && chunked_ && !server_.draining();
  send(head_of(head, chunked_));
  ping_text_ = std::move(keep_alive_text);
  if (!ping_text_.empty()) keep_alive();
}

void Connection::write(std::uint64_t number, std::string data) {
  if (number != number_ || !answering_ || head_only_) return;
  if (backlog_ + data.size() > server_.options().limits.backlog) return abandon();
  send(chunked_ ? fmt::format("{:x}\r\n{}\r\n", data.size(), data) : std::move(data));
}

void Connection::end(std::uint64_t number) {
  if (number != number_ || !answering_) return;
  answering_ = false;
  streaming_ = false;
  abandoned_ = {};
  ping_.cancel();
  if (chunked_ && !head_only_) return send("0\r\n\r\n");
  if (out_.empty()) next_request();
}

void Connection::keep_alive() {
  ping_.expires_after(std::chrono::seconds(15));
  ping_.async_wait([weak = weak_from_this()](error_code error) {
    const auto self = weak.lock();
    if (error || !self || !self->streaming_ || self->dead_) return;
    if (self->out_.empty()) self->write(self->number_, self->ping_text_);
    self->keep_alive();
  });
}

void Connection::send(std::string data) {
  if (dead_) return;
  backlog_ += data.size();
  out_.push_back(std::move(data));
  if (out_.size() == 1) send_next();
}

void Connection::send_next() {
  stream_.expires_after(duration(server_.options().limits.write_seconds));
  asio::async_write(stream_, asio::buffer(out_.front()),
                    [self = shared_from_this()](error_code error, std::size_t) { self->on_sent(error); });
}

void Connection::on_sent(error_code error) {
  if (dead_) return;
  if (error) return abandon();
  backlog_ -= out_.front().size();
  out_.pop_front();
  if (!out_.empty()) return send_next();
  stream_.expires_never();
  if (!answering_) next_request();
}

void Connection::next_request() {
  if (keep_ && !server_.draining()) return read_head();
  linger();
}

/// Closing a socket with unread bytes resets the connection, and the client may never see the answer. So they are read
/// and discarded for two seconds at most.
void Connection::linger() {
  error_code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  stream_.expires_after(std::chrono::seconds(2));
  discard();
}

/// The timeout applies to the whole of it.
void Connection::discard() {
  scratch_.resize(16U << 10U);
  stream_.async_read_some(asio::buffer(scratch_), [self = shared_from_this()](error_code error, std::size_t) {
    error ? self->close() : self->discard();
  });
}

}  // namespace
}  // namespace dllm::serve
