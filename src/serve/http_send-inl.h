#pragma once

// What connections send (http_connection-inl.h), for http_server.cpp.
#include "serve/http_connection-inl.h"

namespace dllm::serve {
namespace {

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
