#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dllm/error.h"
#include "hub/config.h"

namespace dllm::hub {

struct Response {
  long status = 0;
  std::string body;  ///< for errors: the beginning of it
  /// By lower-case name; those of the last hop, and x-linked-*, x-repo-commit and x-error-* of any hop.
  std::map<std::string, std::string, std::less<>> headers;

  std::string_view header(std::string_view name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string_view() : found->second;
  }
};

/// Callbacks of a transfer.
struct Download {
  /// The server's response starts at this byte: local bytes from there on are discarded. False cancels the transfer.
  std::function<bool(std::uint64_t from)> begin;
  std::function<bool(std::span<const char>)> write;
  /// Called about ten times a second, even if nothing is received; false cancels the transfer.
  std::function<bool()> go_on;
  /// Bytes of the whole file; a server that sends more is stopped there.
  std::uint64_t most = 0;
};

/// GET and HEAD over one connection, with libcurl. Follows redirects; the token is not sent to other hosts. Not
/// thread-safe.
class HttpClient {
 public:
  explicit HttpClient(const Config& config);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Any HTTP status is a result. Errors: kIo (no connection, or it broke: `where` is the URL), kCancelled, kResource
  /// (a body of more than 64 MiB).
  Expected<Response> get(const std::string& url, const std::function<bool()>& go_on);
  Expected<Response> head(const std::string& url, const std::function<bool()>& go_on);
  /// Starts at byte `offset`, if the server supports it. Bodies of errors go to the response. Errors: as get(), and kIo
  /// if fewer bytes arrive than announced; kMismatch, if more than Download::most arrive.
  Expected<Response> download(const std::string& url, std::uint64_t offset, const Download& to);

  /// Whether any server has answered, or ended a connection, yet. Until then, connections are given up after
  /// kFirstContactMs, and answers after `patience`.
  bool reached() const;
  static constexpr long kFirstContactMs = 2500, kConnectMs = 20000;
  /// For the first answer. A network that swallows packets, or a proxy, may connect and then say nothing.
  /// `silent`: called once if there is none after kFirstContactMs, with the URL.
  void set_patience(std::chrono::milliseconds patience, std::function<void(const std::string& url)> silent);

  /// `text` with all characters escaped that have a meaning in a path; `/` is kept unless `slash`.
  static std::string escaped(std::string_view text, bool slash = false);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dllm::hub
