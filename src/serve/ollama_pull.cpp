// POST /api/pull: a model of the hub comes into the cache, as by `dllm pull`.
#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "serve/errors.h"
#include "serve/ollama.h"

namespace dllm::serve {
namespace {

constexpr std::chrono::milliseconds kBetweenLines{250};

/// A download for one client: lines of JSON while it goes on, or one answer at its end.
class PullJob {
 public:
  PullJob(CallPtr call, std::string name, bool stream)
      : call_(std::move(call)), name_(std::move(name)), stream_(stream) {}

  /// Downloads have a thread of their own, which must not end by an exception.
  void run() {
    try {
      pull();
    } catch (const std::exception& error) {
      // What a library says may name a file of this machine.
      call_->api.write_log({{"event", "internal error"}, {"id", call_->id}, {"error", error.what()}});
      if (!begun_) return call_->fail(ApiError{500, "internal error", "", ""});
      end(500, {{"error", "internal error"}});
    }
  }

 private:
  void pull() {
    if (call_->is_over()) return;
    if (stream_) {
      call_->exchange->begin_stream({.type = "application/x-ndjson", .headers = call_->answer_headers()}, "");
      begun_ = true;
      line({{"status", "pulling manifest"}});
    }
    const auto pulled = call_->api.options.pull(name_, [this](std::string_view file, std::uint64_t total,
                                                              std::uint64_t done) { return tell(file, total, done); });
    if (!stream_) return pulled ? call_->reply({{"status", "success"}}) : call_->fail(pulled.error());
    const int status = pulled ? 200 : api_error(pulled.error()).status;
    end(status, pulled ? Json{{"status", "success"}} : Json{{"error", pulled.error().message()}});
  }

  void end(int status, const Json& last) {
    line(last);
    call_->exchange->end();
    call_->log(status, {{"pulled", name_}});
  }

  void line(const Json& json) { call_->exchange->write(dump(json) + "\n"); }

  bool tell(std::string_view file, std::uint64_t total, std::uint64_t done) {
    if (call_->gone() || call_->api.draining) return false;
    const auto now = std::chrono::steady_clock::now();
    if (!stream_ || total == 0 || now < next_) return true;
    next_ = now + kBetweenLines;
    line({{"status", fmt::format("pulling {}", file)}, {"digest", file}, {"total", total}, {"completed", done}});
    return true;
  }

  CallPtr call_;
  std::string name_;
  bool stream_, begun_ = false;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace

Expected<void> ollama_pull(const CallPtr& call) {
  if (!call->api.options.pull) return ollama_unsupported(call);
  Fields fields(call->body, &call->ignored);
  DLLM_TRY(auto name, fields.text("model"));
  DLLM_TRY(const auto old_name, fields.text("name"));
  DLLM_TRY(const bool stream, fields.flag("stream", true));
  for (const char* ignored : {"insecure", "username", "password"}) fields.ignore(ignored);
  DLLM_CHECK_OK(fields.done());
  if (!name) name = old_name;
  if (name.value_or("").empty()) return wrong_type("model", "given: ORG/MODEL, or ORG/MODEL:TYPE");
  const auto job = std::make_shared<PullJob>(call, without_latest(*name), stream);
  if (!call->api.add_download(call->client, [job] { job->run(); }))
    call->fail(ApiError{429, "too many downloads of this client wait", "", std::string(kQueueFull)});
  return {};
}

}  // namespace dllm::serve
