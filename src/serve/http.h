#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dllm/error.h"

namespace dllm::serve {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   ///< as sent: "GET"
  std::string path;     ///< without the query
  HttpHeaders headers;  ///< names in lower case
  std::string body;
  std::string peer;  ///< "127.0.0.1:51234"

  /// The first header of this name (lower case); empty: there is none.
  std::string_view header(std::string_view name) const {
    for (const auto& [key, value] : headers)
      if (key == name) return value;
    return {};
  }
};

struct HttpResponse {
  int status = 200;
  std::string body{};
  std::string type = "application/json";
  HttpHeaders headers{};
};

/// A request that is to be answered once: by reply(), or by begin_stream(), write() and end(). Thread-safe; nothing
/// happens once the client has gone. An exchange that is dropped without an answer closes the connection.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  virtual void reply(HttpResponse response) = 0;
  /// `keep_alive`: sent whenever nothing was for a quarter of a minute, so that no proxy gives up.
  virtual void begin_stream(HttpResponse head, std::string keep_alive) = 0;
  virtual void write(std::string data) = 0;
  virtual void end() = 0;
  /// Bytes written and not sent yet. A stream whose reader leaves HttpLimits::backlog unread is cut.
  virtual std::size_t backlog() const = 0;
  /// Called at most once, in the server's thread, if the client goes away before the answer is complete.
  virtual void on_abandoned(std::function<void()> call) = 0;
};

struct HttpLimits {
  std::size_t body = 4U << 20U;       ///< bytes; more is a 413
  std::uint32_t header = 16U << 10U;  ///< bytes of all header lines; more is a 431
  std::size_t connections = 512;      ///< more are told 503
  std::size_t backlog = 4U << 20U;    ///< bytes of a stream that wait for its reader
  double idle_seconds = 75;           ///< until a request's header is complete
  double body_seconds = 60;           ///< until its body is
  double write_seconds = 60;          ///< in which a client takes what it is sent
};

/// An HTTP/1.1 server of one thread (Boost.Beast parses). Bodies and headers are bounded while they are read, chunked
/// ones too.
class HttpServer {
 public:
  using Handler = std::function<void(std::shared_ptr<Exchange>)>;
  /// The answer to what never becomes a request: too long, not HTTP, too many.
  using Refusal = std::function<HttpResponse(int status, std::string message)>;

  struct Options {
    std::string host = "127.0.0.1";
    std::uint16_t port = 8080;  ///< 0: any
    HttpLimits limits{};
    Handler handler{};
    Refusal refusal{};
    /// SIGTERM or SIGINT came, for the first time or again.
    std::function<void(bool again)> on_signal{};
  };

  /// Errors: kIo (the address is in use, or none of this machine's).
  static Expected<std::unique_ptr<HttpServer>> listen(Options options);
  virtual ~HttpServer() = default;

  virtual std::uint16_t port() const = 0;
  /// Serves until drain() has ended, or abort().
  virtual void run() = 0;
  /// No new connections or requests; run() returns when those that have begun are answered. Any thread.
  virtual void drain() = 0;
  /// run() returns now. Any thread.
  virtual void abort() = 0;
  virtual std::size_t connections() const = 0;
};

}  // namespace dllm::serve
