#include "serve/testing/fuzz_entry.h"

#include "serve/api.h"

namespace dllm::serve {
namespace {

void require(bool condition) {
  if (!condition) __builtin_trap();
}

/// Takes a line off the text, without its end.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

HttpRequest parse_request(std::string_view text) {
  HttpRequest request;
  const std::string_view first = take_line(text);
  const std::size_t space = std::min(first.find(' '), first.size());
  request.method = first.substr(0, space);
  request.path = first.substr(std::min(space + 1, first.size()));
  for (std::string_view line = take_line(text); !line.empty(); line = take_line(text)) {
    const std::size_t colon = std::min(line.find(": "), line.size());
    request.headers.emplace_back(line.substr(0, colon), line.substr(std::min(colon + 2, line.size())));
  }
  request.body = text;
  return request;
}

class FuzzExchange final : public Exchange {
 public:
  explicit FuzzExchange(HttpRequest request) : request_(std::move(request)) {}

  const HttpRequest& request() const override { return request_; }
  void reply(HttpResponse response) override {
    require(!answered_);
    answered_ = true;
    require(response.status >= 200 && (response.status < 500 || response.status == 503));
    if (response.status >= 400)
      require(Json::parse(response.body, nullptr, /*allow_exceptions=*/false).contains("error"));
  }
  void begin_stream(HttpResponse head, std::string) override {
    require(!answered_ && head.status == 200);
    answered_ = streams_ = true;
  }
  void write(std::string data) override { require(streams_ && !ended_ && !data.empty()); }
  void end() override {
    require(streams_ && !ended_);
    ended_ = true;
  }
  std::size_t backlog() const override { return 0; }
  void on_abandoned(std::function<void()> call) override { abandoned_ = std::move(call); }

  void abandon() {
    if (abandoned_) abandoned_();
  }

 private:
  const HttpRequest request_;
  std::function<void()> abandoned_;
  bool answered_ = false, streams_ = false, ended_ = false;
};

/// A server without its sockets. Everything that is not a request of the fuzzer's stays constant.
struct FuzzServer {
  LanguageModel model = *LanguageModel::load("");
  ServerOptions options = [] {
    ServerOptions small;
    small.scheduling = {.parallel = 2, .queue = 8, .prefix_bytes = 1 << 20};
    small.max_tokens = 16;
    small.log = LogForm::kNone;
    small.defaults.length = 8;
    return small;
  }();
  /// Borrowed, and not started: the fuzzer makes its steps.
  std::unique_ptr<ServedModel> served = *ServedModel::create(borrowed(model), options, {}, "", {});
  Api api{options, nullptr};
  FuzzServer() { api.only = served.get(); }
};

}  // namespace

void fuzz_http(std::string_view text) {
  static FuzzServer server;
  const auto exchange = std::make_shared<FuzzExchange>(parse_request(text));
  Scheduler& scheduler = server.served->scheduler;
  if (const CallPtr call = server.api.begin(exchange); call && server.api.read(call)) server.api.answer(call);
  for (int pass = 0; pass < 2 && scheduler.step(); ++pass) continue;
  exchange->abandon();
  while (scheduler.step()) continue;
}

}  // namespace dllm::serve
