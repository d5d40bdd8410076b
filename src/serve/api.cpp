#include "serve/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <new>
#include <ostream>

#include "base/os_process.h"
#include "base/try.h"
#include "base/utc.h"
#include "serve/page.h"

namespace dllm::serve {
namespace {

/// Constant time: depends on the lengths only, not on where the keys differ.
bool same_secret(std::string_view a, std::string_view b) {
  volatile unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < b.size(); ++i)
    difference = difference | static_cast<unsigned char>((i < a.size() ? a[i] : 0) ^ b[i]);
  return difference == 0;
}

std::string random_id() {
  std::uint64_t words[2] = {};
  if (!random_bytes(words, sizeof words)) words[0] = static_cast<std::uint64_t>(std::time(nullptr));
  return fmt::format("{:016x}{:08x}", words[0], static_cast<std::uint32_t>(words[1]));
}

bool same_letters(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

/// The trace id of a W3C traceparent, "00-<32 hex>-<16 hex>-<2 hex>"; empty if malformed.
std::string trace_id(std::string_view header) {
  if (header.size() < 55 || header[2] != '-' || header[35] != '-' || header[52] != '-') return "";
  const std::string_view id = header.substr(3, 32);
  const bool hex = std::ranges::all_of(id, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  return hex && id.find_first_not_of('0') != id.npos ? std::string(id) : "";
}

/// The headers that pages may send: ours, and those of the official clients, whose number grows with their versions.
std::string allowed_headers(std::string_view asked) {
  std::string allowed = "Authorization, Content-Type, X-Api-Key, Traceparent, Idempotency-Key, User-Agent";
  while (!asked.empty()) {
    const std::size_t end = std::min(asked.find(','), asked.size());
    std::string_view name = asked.substr(0, end);
    asked.remove_prefix(std::min(end + 1, asked.size()));
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    const auto is_word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
    const auto is_theirs = [&](std::string_view family) { return name.starts_with(family); };
    constexpr std::string_view kFamilies[] = {"x-stainless-", "anthropic-", "openai-", "http-referer", "x-title"};
    if (std::ranges::all_of(name, is_word) && std::ranges::any_of(kFamilies, is_theirs))
      allowed += ", " + std::string(name);
  }
  return allowed;
}

const Route* find_route(const std::string& method, std::string path, bool& path_known) {
  if (path.size() > 1 && path.ends_with('/')) path.pop_back();
  path_known = false;
  // The page's own files are one route, "/": they are one line in the metrics.
  if (path.starts_with(kPageFolder)) path = "/";
  for (const Route& route : routes()) {
    // Clients whose base URL ends in /v1 add /v1 to every path, others to none.
    const auto is = [&](std::string_view asked) {
      return route.prefix ? asked.size() > route.path.size() && asked.starts_with(route.path) : asked == route.path;
    };
    if (!is(path) && !is("/v1" + path) && !(path.starts_with("/v1/") && is(path.substr(3)))) continue;
    path_known = true;
    if (route.method == method || (method == "HEAD" && route.method == "GET")) return &route;
  }
  return nullptr;
}

}  // namespace

ApiError no_seat() { return {429, "the last places are kept for other clients", "", "queue_full"}; }

Expected<void> Call::read_model(Fields& fields) {
  DLLM_TRY(const auto asked, fields.text("model"));
  if (!asked || asked->empty()) return {};
  if (api.only != nullptr && !served().is_served(*asked)) return unknown_model(*asked, {served().name()});
  if (*asked != kDefaultName) model = *asked;
  return {};
}

const std::string& Call::name() const { return model.empty() ? served().name() : model; }

HttpHeaders Call::answer_headers() const {
  HttpHeaders all = headers;
  if (const std::string names = ignored.text(); !names.empty()) all.emplace_back("x-dllm-ignored", names);
  return all;
}

void Call::reply(HttpResponse response, const Json& facts) {
  const HttpHeaders own = answer_headers();
  response.headers.insert(response.headers.end(), own.begin(), own.end());
  log(response.status, facts);
  exchange->reply(std::move(response));
}

void Call::fail(const ApiError& error, const std::string& logged) {
  constexpr std::size_t kLongest = 2000;  // names from requests may be in it
  reply(error_response(error, dialect, bound != nullptr ? bound->retry_seconds() : 1),
        {{"error", (logged.empty() ? error.message : logged).substr(0, kLongest)}});
}

bool Call::gone() const { return stop.stop_requested() || api.ended; }

bool Call::is_late() const { return seconds() > api.options.request_seconds; }

bool Call::is_over() {
  if (gone()) {
    log(499, {{"error", api.ended ? "the server ended before the answer" : "the client has gone"}});
    return true;
  }
  if (!is_late()) return false;
  fail(Error{ErrorCode::kCancelled, "the request timed out", std::string(kDeadline), ""});
  return true;
}

void Call::log(int status, const Json& facts) const {
  const HttpRequest& request = exchange->request();
  if (gone()) status = 499;
  api.metrics.answered(route, status, seconds());
  Json line = {{"time", utc_text(std::chrono::system_clock::now())},
               {"id", id},
               {"peer", request.peer},
               {"method", request.method},
               {"path", route},
               {"status", status},
               {"seconds", seconds()}};
  if (route == "other") line["path"] = request.path.substr(0, 200);
  if (!trace.empty()) line["trace"] = trace;
  if (facts.is_object())
    for (const auto& [key, value] : facts.items()) line[key] = value;
  api.write_log(line);
}

Api::Api(const ServerOptions& settings, LogSink log)
    : options(settings), log_(std::move(log), [form = settings.log](std::uint64_t lines) {
        return log_line({{"event", "log lines lost"}, {"lines", lines}}, form);
      }) {}

void Api::write_log(const Json& line) {
  if (options.log != LogForm::kNone) log_.write(log_line(line, options.log));
}

/// The number of the key that a request gives: as a bearer or as x-api-key, or in both ways, of which one may be wrong.
std::optional<std::size_t> Api::key_of(const HttpRequest& request) const {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view authorization = request.header("authorization");
  std::string_view bearer;
  if (same_letters(authorization.substr(0, kBearer.size()), kBearer)) bearer = authorization.substr(kBearer.size());
  std::optional<std::size_t> known;
  for (std::size_t i = 0; i < options.keys.size(); ++i) {
    const bool first = same_secret(bearer, options.keys[i]);
    if (same_secret(request.header("x-api-key"), options.keys[i]) || first) known = i;
  }
  return known;
}

bool Api::origin_listed(std::string_view origin) const {
  return std::ranges::any_of(options.origins, [&](const std::string& one) { return one == "*" || one == origin; });
}

/// Whether a Host header names this machine. Otherwise a page of another site could make a browser send requests here
/// under that site's own name (DNS rebinding).
bool Api::local_host(std::string_view host) const {
  if (host.empty()) return true;
  if (const std::size_t port = host.rfind(':'); port != host.npos && host.find(']', port) == host.npos)
    host = host.substr(0, port);
  for (const std::string_view one : {std::string_view("localhost"), std::string_view("127.0.0.1"),
                                     std::string_view("[::1]"), std::string_view(options.host)})
    if (same_letters(host, one)) return true;
  return false;
}

/// Why the request is refused whatever its body says; nullopt if it is not.
std::optional<ApiError> Api::admit(Call& call, const Route* route) {
  const HttpRequest& request = call.exchange->request();
  const bool loopback = options.host == "localhost" || options.host == "::1" || options.host.starts_with("127.");
  // Browsers have no way to a Unix socket.
  if (options.socket.empty() && loopback && options.keys.empty() && !local_host(request.header("host")))
    return ApiError{403, "the Host header names another machine; give --host or --api-key to serve others", "", ""};
  const std::string_view origin = request.header("origin");
  if (!origin.empty() && !origin_listed(origin)) {
    const std::size_t scheme = origin.find("://");
    if (scheme == origin.npos || !same_letters(origin.substr(scheme + 3), request.header("host")))
      return ApiError{403, "pages of this origin are not allowed; the server's --cors-origin lists the allowed ones",
                      "", ""};
  }
  const auto key = key_of(request);
  if (key) call.client = fmt::format("key {}", *key);
  if (!options.keys.empty() && (route == nullptr || !route->open) && request.method != "OPTIONS" && !key)
    return ApiError{401, "a valid key is needed: Authorization: Bearer KEY", "", "invalid_api_key"};
  if (draining && (route == nullptr || !route->open)) return ApiError{503, "the server is shutting down", "", ""};
  const std::string_view coding = request.header("content-encoding");
  if (!coding.empty() && !same_letters(coding, "identity")) {
    call.headers.emplace_back("Accept-Encoding", "identity");
    return ApiError{415, "bodies with a Content-Encoding are not read: send them as they are", "", ""};
  }
  return std::nullopt;
}

/// Counts the call among its client's.
void Api::count(Call& call) {
  const std::lock_guard lock(clients_mutex_);
  ++unanswered_[call.client];
  call.seat = std::shared_ptr<void>(nullptr, [this, client = call.client](void*) {
    const std::lock_guard leaving(clients_mutex_);
    if (--unanswered_[client] == 0) unanswered_.erase(client);
  });
}

/// The last places of a model's queue are kept for clients who have none: false if these are left, and the call is not
/// its client's first.
bool Api::seated(const Call& call) {
  const SchedulerCounters now = call.served().scheduler.counters();
  const int places = options.scheduling.parallel + options.scheduling.queue;
  const int kept = std::min(4, options.scheduling.queue / 16);
  const std::lock_guard lock(clients_mutex_);
  return unanswered_[call.client] <= 1 || places - now.running - now.waiting > kept;
}

CallPtr Api::begin(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  bool path_known = false;
  const Route* route = find_route(request.method, request.path, path_known);
  const auto call = std::make_shared<Call>(Call{*this, exchange, random_id(), trace_id(request.header("traceparent")),
                                                route != nullptr ? std::string(route->path) : "other", request.client});
  call->bound = only;
  exchange->on_abandoned([stop = call->stop]() mutable { stop.request_stop(); });
  if (route != nullptr) call->dialect = route->dialect;
  call->headers.emplace_back("X-Request-Id", call->id);
  if (const std::string_view origin = request.header("origin"); !origin.empty() && origin_listed(origin)) {
    call->headers.emplace_back("Access-Control-Allow-Origin", origin);
    call->headers.emplace_back("Vary", "Origin");
    call->headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, X-Dllm-Ignored, Retry-After");
  }
  const auto refused = [&](const ApiError& error) {
    call->fail(error);
    return CallPtr();
  };
  if (const auto error = admit(*call, route)) return refused(*error);
  if (request.method == "OPTIONS") {
    call->headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    call->headers.emplace_back("Access-Control-Allow-Headers",
                               allowed_headers(request.header("access-control-request-headers")));
    call->headers.emplace_back("Access-Control-Max-Age", "3600");
    call->reply(HttpResponse{.status = 204, .type = ""});
    return nullptr;
  }
  if (route == nullptr)
    return refused(path_known ? ApiError{405, request.method + " is not for this path", "", ""}
                              : ApiError{404, "there is no such path", "", ""});
  call->handler = route->handler;
  call->by = route->by;
  if (route->method != "POST" && (only != nullptr || route->by == Answers::kAtOnce)) {
    answer(call);
    return nullptr;
  }
  if (only != nullptr)
    if (const auto error = only->unfit()) return refused(*error);
  count(*call);
  if (only != nullptr && !seated(*call)) return refused(no_seat());
  return call;
}

/// Does `work`, whose failure of whatever kind is the call's answer.
void Api::run(const CallPtr& call, const std::function<Expected<void>()>& work) {
  try {
    const auto done = work();
    if (done || (done.error().code == ErrorCode::kCancelled && call->is_over())) return;
    call->fail(done.error());
  } catch (const std::bad_alloc&) {
    call->fail(ApiError{503, "out of memory", "", ""});
  } catch (const std::exception& error) {
    // What a library says may name a file of this machine.
    write_log({{"event", "internal error"}, {"id", call->id}, {"error", error.what()}});
    call->fail(ApiError{500, "internal error", "", ""});
  }
}

bool Api::read(const CallPtr& call) {
  if (call->is_over()) return false;
  bool read = false;
  run(call, [&]() -> Expected<void> {
    if (call->exchange->request().method != "POST") {
      read = true;
      return {};
    }
    auto body = parse_body(call->exchange->request().body, call->stop.get_token());
    if (!body) return std::move(body).error();
    call->body = *std::move(body);
    read = true;
    return {};
  });
  return read;
}

void Api::answer(const CallPtr& call) {
  if (call->is_over()) return;
  run(call, [&] { return call->handler(call); });
}

}  // namespace dllm::serve
