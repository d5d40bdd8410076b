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
  std::string query{};  ///< what follows the "?", as sent
  HttpHeaders headers;  ///< names in lower case
  std::string body;
  std::string peer;    ///< "127.0.0.1:51234"
  std::string client;  ///< the peer without what it may choose at will: no port, of IPv6 the network

  /// The first header with this name (lower case); empty: none.
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

/// A request that must be answered once: by reply(), or by begin_stream(), write() and end(). Thread-safe; calls after
/// the client has disconnected have no effect. If an exchange is destroyed unanswered, the connection is closed.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  virtual void reply(HttpResponse response) = 0;
  /// `keep_alive`: sent after every 15 idle seconds, so that no proxy times out; empty: nothing is.
  virtual void begin_stream(HttpResponse head, std::string keep_alive) = 0;
  virtual void write(std::string data) = 0;
  virtual void end() = 0;
  /// Bytes written but not sent yet. A stream with more than HttpLimits::backlog of them is closed.
  virtual std::size_t backlog() const = 0;
  /// Called at most once, in the server's thread, if the client goes away before the answer is complete. A later call
  /// replaces it. A client that only ends its sending is not gone.
  virtual void on_abandoned(std::function<void()> call) = 0;
};

struct HttpLimits {
  std::size_t body = 4U << 20U;       ///< bytes; more is a 413
  std::uint32_t header = 16U << 10U;  ///< bytes of all header lines; more is a 431
  std::size_t connections = 512;      ///< further ones get 503
  std::size_t backlog = 4U << 20U;    ///< bytes of a stream waiting for its reader
  double idle_seconds = 75;           ///< until a request's header is complete
  double body_seconds = 60;           ///< until its body is
  double write_seconds = 60;          ///< for the client to read what it is sent
};

/// An HTTP/1.1 server in one thread; read_head() reads headers, Boost.Beast bodies. The sizes of bodies and headers are
/// limited while they are read, including chunked ones.
class HttpServer {
 public:
  using Handler = std::function<void(std::shared_ptr<Exchange>)>;
  /// The answer to input that never becomes a request: too long, not HTTP, too many connections.
  using Refusal = std::function<HttpResponse(int status, std::string message)>;

  struct Options {
    std::string host = "127.0.0.1";
    std::uint16_t port = 8080;  ///< 0: any
    std::string socket{};       ///< path of a Unix socket to listen on instead; empty: none
    HttpLimits limits{};
    Handler handler{};
    Refusal refusal{};
    /// Called on SIGTERM or SIGINT, the first and each later one.
    std::function<void(bool again)> on_signal{};
  };

  /// Errors: kIo (the address is in use, or is not this machine's), kResource (descriptors).
  static Expected<std::unique_ptr<HttpServer>> listen(Options options);
  virtual ~HttpServer() = default;

  virtual std::uint16_t port() const = 0;
  /// Serves until drain() completes, or abort().
  virtual void run() = 0;
  /// Accepts no new connections or requests; run() returns once those in progress are answered. Callable in any thread.
  virtual void drain() = 0;
  /// Makes run() return now. Callable in any thread.
  virtual void abort() = 0;
  virtual std::size_t connections() const = 0;
};

}  // namespace dllm::serve
