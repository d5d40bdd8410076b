#pragma once

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
  std::string body;  ///< of errors: its beginning
  /// By lower-case name; of the last hop, and x-linked-*, x-repo-commit and x-error-* of any.
  std::map<std::string, std::string, std::less<>> headers;

  std::string_view header(std::string_view name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string_view() : found->second;
  }
};

/// What a transfer hands over.
struct Download {
  /// The server's answer begins at this byte: what is there behind it is thrown away. False ends the transfer.
  std::function<bool(std::uint64_t from)> begin;
  std::function<bool(std::span<const char>)> write;
  /// Asked about ten times a second, also while nothing comes; false ends the transfer.
  std::function<bool()> go_on;
};

/// GET and HEAD over one connection, by libcurl. Redirects are followed; the token is not sent to other hosts. Not
/// thread-safe.
class HttpClient {
 public:
  explicit HttpClient(const Config& config);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Any status is a value. Errors: kIo (no connection, or it broke: `where` is the URL), kCancelled, kResource (a body
  /// of more than 64 MiB).
  Expected<Response> get(const std::string& url, const std::function<bool()>& go_on);
  Expected<Response> head(const std::string& url, const std::function<bool()>& go_on);
  /// From byte `offset` on, where the server can. Bodies of errors go to the response. Errors: as get(), and kIo if
  /// fewer bytes come than were announced.
  Expected<Response> download(const std::string& url, std::uint64_t offset, const Download& to);

  /// `text` with everything escaped that has a meaning in a path; `/` stays unless `slash`.
  static std::string escaped(std::string_view text, bool slash = false);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dllm::hub
