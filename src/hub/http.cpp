#include "hub/http.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <functional>
#include <mutex>
#include <utility>

#include "base/os_sockets.h"
#include "dllm/version.h"
#include "hub/certificates.h"
#include "hub/text.h"

namespace dllm::hub {
namespace {

constexpr std::size_t kMaxBody = std::size_t{64} << 20;
constexpr std::size_t kMaxErrorBody = 4096;

/// Headers that count from any hop: the hub identifies the file, its content delivery network does not.
constexpr std::array<std::string_view, 5> kLasting = {"x-linked-etag", "x-linked-size", "x-repo-commit", "x-error-code",
                                                      "x-error-message"};

void start_libcurl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

Certificates certificates_of_this_system() {
  const curl_version_info_data& curl = *curl_version_info(CURLVERSION_NOW);
  const auto text = [](const char* value) { return std::string(value == nullptr ? "" : value); };
  return find_certificates(process_environment, {text(curl.cainfo), text(curl.capath)}, [](const std::string& path) {
    std::error_code unknown;
    return !kCertificateStore && std::filesystem::exists(path, unknown);
  });
}

/// What helps where a server could not be verified; empty: nothing known.
std::string certificate_hint(CURLcode code, const Certificates& used) {
  if (code == CURLE_SSL_CACERT_BADFILE ||
      (code == CURLE_PEER_FAILED_VERIFICATION && used.file.empty() && used.folder.empty()))
    return fmt::format("the certificates of this system {}: set SSL_CERT_FILE to a bundle in PEM format",
                       used.file.empty() ? "were not found" : "cannot be read from " + used.file);
  return "";
}

/// What a client does until a server has answered for the first time.
struct FirstContact {
  std::chrono::milliseconds patience{HttpClient::kConnectMs};
  std::function<void(const std::string& url)> silent{};
  std::string url{};
};

/// One request in progress.
struct Exchange {
  CURL* handle = nullptr;
  Response response;
  const Download* download = nullptr;
  const std::function<bool()>* go_on = nullptr;
  std::uint64_t offset = 0, at = 0;  ///< at: after the bytes received so far
  bool begun = false, stopped = false, too_long = false, wrong_range = false, overflows = false;
  bool answered = false, unanswered = false;  ///< a header was received; none was within the client's patience
  FirstContact* first = nullptr;              ///< if no server has answered yet
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  bool succeeded() const { return response.status == 200 || response.status == 206; }
};

std::size_t on_header(char* data, std::size_t size, std::size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const std::string_view line(data, size * count);
  auto& headers = exchange.response.headers;
  exchange.answered = true;
  if (line.starts_with("HTTP/")) {
    std::erase_if(headers,
                  [](const auto& header) { return std::ranges::find(kLasting, header.first) == kLasting.end(); });
  } else if (const auto colon = line.find(':'); colon != line.npos) {
    headers[lower(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
  }
  return line.size();
}

/// "bytes 100-199/200" -> 100
bool range_begins_at(std::string_view range, std::uint64_t offset) {
  if (!range.starts_with("bytes ")) return false;
  range.remove_prefix(6);
  std::uint64_t first = 0;
  const auto [end, failure] = std::from_chars(range.data(), range.data() + range.size(), first);
  return failure == std::errc() && first == offset;
}

bool begin_download(Exchange& exchange) {
  if (exchange.begun) return true;
  exchange.begun = true;
  exchange.at = exchange.response.status == 200 ? 0 : exchange.offset;
  if (exchange.response.status == 200) return exchange.download->begin(0);
  exchange.wrong_range = !range_begins_at(exchange.response.header("content-range"), exchange.offset);
  return !exchange.wrong_range && exchange.download->begin(exchange.offset);
}

std::size_t on_body(char* data, std::size_t size, std::size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const std::size_t bytes = size * count;
  curl_easy_getinfo(exchange.handle, CURLINFO_RESPONSE_CODE, &exchange.response.status);
  if (exchange.download != nullptr && exchange.succeeded()) {
    const bool begun = begin_download(exchange);
    exchange.overflows = begun && bytes > exchange.download->most - std::min(exchange.at, exchange.download->most);
    if (begun && !exchange.overflows && exchange.download->write({data, bytes})) {
      exchange.at += bytes;
      return bytes;
    }
    exchange.stopped = !exchange.wrong_range && !exchange.overflows;
    return 0;
  }
  std::string& body = exchange.response.body;
  const std::size_t limit = exchange.succeeded() ? kMaxBody : kMaxErrorBody;
  if (body.size() + bytes > limit && exchange.succeeded()) {
    exchange.too_long = true;
    return 0;
  }
  body.append(data, std::min(bytes, limit - std::min(limit, body.size())));
  return bytes;
}

/// False: the first answer takes too long.
bool is_patient(Exchange& exchange) {
  if (exchange.first == nullptr || exchange.answered) return true;
  const auto waited = std::chrono::steady_clock::now() - exchange.start;
  exchange.unanswered = waited >= exchange.first->patience;
  if (waited >= std::chrono::milliseconds(HttpClient::kFirstContactMs) && exchange.first->silent)
    std::exchange(exchange.first->silent, {})(exchange.first->url);
  return !exchange.unanswered;
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& exchange = *static_cast<Exchange*>(user);
  if (!is_patient(exchange)) return 1;
  if (exchange.go_on == nullptr || !*exchange.go_on || (*exchange.go_on)()) return 0;
  exchange.stopped = true;
  return 1;
}

}  // namespace

struct HttpClient::Impl {
  CURL* handle = nullptr;
  curl_slist* headers = nullptr;
  std::array<char, CURL_ERROR_SIZE> message{};
  bool reached = false;
  FirstContact first;
  Certificates certificates;

  Expected<Response> perform(const std::string& url, Exchange& exchange) {
    exchange.handle = handle;
    exchange.first = reached ? nullptr : &first;
    first.url = url;
    message[0] = '\0';
    curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
    curl_easy_setopt(handle, CURLOPT_HEADERDATA, &exchange);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, &exchange);
    curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &exchange);
    curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, reached ? kConnectMs : kFirstContactMs);
    const CURLcode code = curl_easy_perform(handle);
    // A server that cuts the connection is there; what swallows packets is none.
    long connections = 0;
    curl_easy_getinfo(handle, CURLINFO_NUM_CONNECTS, &connections);
    const bool silent = exchange.unanswered || code == CURLE_OPERATION_TIMEDOUT;
    // What a proxy answers instead of the server says nothing of it.
    long proxy_status = 0;
    curl_easy_getinfo(handle, CURLINFO_HTTP_CONNECTCODE, &proxy_status);
    const bool refused = code != CURLE_OK && proxy_status >= 400;
    reached = reached || (!refused && (exchange.answered || (connections > 0 && !silent)));
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &exchange.response.status);
    if (exchange.stopped) return Error{ErrorCode::kCancelled, "the download was stopped", url, ""};
    if (exchange.unanswered)
      return Error{ErrorCode::kIo,
                   fmt::format("no answer within {:.1f} s", std::chrono::duration<double>(first.patience).count()), url,
                   ""};
    if (exchange.too_long) return Error{ErrorCode::kResource, "the answer is longer than 64 MiB", url, ""};
    if (exchange.overflows)
      return Error{
          ErrorCode::kMismatch,
          fmt::format("the server sends more than the {} bytes that the hub announced", exchange.download->most), url,
          "the file at the hub is another one, or damaged"};
    if (exchange.wrong_range) return Error{ErrorCode::kIo, "the server sent another range than requested", url, ""};
    if (code != CURLE_OK)
      return Error{ErrorCode::kIo, message[0] != '\0' ? message.data() : curl_easy_strerror(code), url,
                   certificate_hint(code, certificates)};
    // An empty file has no body.
    if (exchange.download != nullptr && exchange.succeeded() && !begin_download(exchange))
      return Error{ErrorCode::kCancelled, "the download was stopped", url, ""};
    return std::move(exchange.response);
  }
};

HttpClient::HttpClient(const Config& config) : impl_(std::make_unique<Impl>()) {
  start_libcurl();
  CURL* const handle = impl_->handle = curl_easy_init();
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(handle, CURLOPT_MAXREDIRS, 10L);
  impl_->certificates = certificates_of_this_system();
  if (const auto& [file, folder] = impl_->certificates; !file.empty() || !folder.empty()) {
    // Both, so that those of SSL_CERT_FILE are the only ones.
    curl_easy_setopt(handle, CURLOPT_CAINFO, file.empty() ? nullptr : file.c_str());
    curl_easy_setopt(handle, CURLOPT_CAPATH, folder.empty() ? nullptr : folder.c_str());
  }
  // Once encrypted, stay encrypted.
  const char* const protocols = config.endpoint.starts_with("https") ? "https" : "http,https";
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, protocols);
  curl_easy_setopt(handle, CURLOPT_REDIR_PROTOCOLS_STR, protocols);
  // A connection that transfers nothing for a minute is considered dead.
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, 60L);
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "dllm/" DLLM_VERSION);
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, impl_->message.data());
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  // On redirects, libcurl does not send this header to other hosts.
  if (!config.token.empty())
    impl_->headers = curl_slist_append(nullptr, fmt::format("Authorization: Bearer {}", config.token).c_str());
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, impl_->headers);
}

HttpClient::~HttpClient() {
  curl_easy_cleanup(impl_->handle);
  curl_slist_free_all(impl_->headers);
}

bool HttpClient::reached() const { return impl_->reached; }

void HttpClient::set_patience(std::chrono::milliseconds patience, std::function<void(const std::string& url)> silent) {
  impl_->first.patience = patience;
  impl_->first.silent = std::move(silent);
}

Expected<Response> HttpClient::get(const std::string& url, const std::function<bool()>& go_on) {
  Exchange exchange;
  exchange.go_on = &go_on;
  curl_easy_setopt(impl_->handle, CURLOPT_HTTPGET, 1L);
  curl_easy_setopt(impl_->handle, CURLOPT_RANGE, nullptr);
  return impl_->perform(url, exchange);
}

Expected<Response> HttpClient::head(const std::string& url, const std::function<bool()>& go_on) {
  Exchange exchange;
  exchange.go_on = &go_on;
  curl_easy_setopt(impl_->handle, CURLOPT_NOBODY, 1L);
  curl_easy_setopt(impl_->handle, CURLOPT_RANGE, nullptr);
  return impl_->perform(url, exchange);
}

Expected<Response> HttpClient::download(const std::string& url, std::uint64_t offset, const Download& to) {
  Exchange exchange;
  exchange.download = &to;
  exchange.go_on = &to.go_on;
  exchange.offset = offset;
  curl_easy_setopt(impl_->handle, CURLOPT_HTTPGET, 1L);
  const std::string range = fmt::format("{}-", offset);
  curl_easy_setopt(impl_->handle, CURLOPT_RANGE, offset > 0 ? range.c_str() : nullptr);
  return impl_->perform(url, exchange);
}

std::string HttpClient::escaped(std::string_view text, bool slash) {
  std::string result;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' ||
                       c == '~' || (c == '/' && !slash);
    result += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return result;
}

}  // namespace dllm::hub
