#include "serve/log_writer.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace dllm::serve {

std::string log_line(const Json& fields, LogForm form) {
  if (form == LogForm::kJson) return dump(fields);
  std::string text;
  for (const auto& [key, value] : fields.items()) {
    const std::string shown =
        value.is_string() && value.get_ref<const std::string&>().find_first_of(" \"\\\t\r\n\x1b") == std::string::npos
            ? value.get<std::string>()
        : value.is_number_float() ? fmt::format("{:.3f}", value.get<double>())
                                  : value.dump(-1, ' ', true, Json::error_handler_t::replace);
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, shown);
  }
  return text;
}

struct LogWriter::State {
  State(LogSink target, std::function<std::string(std::uint64_t)> of_lost, std::size_t limit)
      : out(std::move(target)), notice(std::move(of_lost)), most(limit) {}

  LogSink out;
  std::function<std::string(std::uint64_t)> notice;
  std::size_t most;
  std::mutex mutex;
  std::condition_variable wake, done;
  std::string waiting;
  std::uint64_t lost = 0, told = 0;  ///< lines; of them, those whose loss was written
  bool ending = false, ended = false;

  void work();
};

void LogWriter::State::work() {
  std::unique_lock lock(mutex);
  for (;;) {
    wake.wait(lock, [this] { return ending || !waiting.empty(); });
    if (waiting.empty()) break;
    std::string now = std::exchange(waiting, {});
    if (lost > told) now += notice(lost - std::exchange(told, lost)) + '\n';
    lock.unlock();
    if (out) out(now);
    lock.lock();
  }
  ended = true;
  done.notify_all();
}

LogWriter::LogWriter(LogSink out, std::function<std::string(std::uint64_t)> notice, std::size_t most)
    : state_(std::make_shared<State>(std::move(out), std::move(notice), most)) {
  std::thread([state = state_] { state->work(); }).detach();
}

LogWriter::~LogWriter() {
  std::unique_lock lock(state_->mutex);
  state_->ending = true;
  state_->wake.notify_all();
  state_->done.wait_for(lock, std::chrono::seconds(1), [this] { return state_->ended; });
}

void LogWriter::write(std::string line) {
  const std::lock_guard lock(state_->mutex);
  if (state_->waiting.size() + line.size() >= state_->most) {
    ++state_->lost;
    return;
  }
  state_->waiting += std::move(line) + '\n';
  state_->wake.notify_one();
}

std::uint64_t LogWriter::lost() const {
  const std::lock_guard lock(state_->mutex);
  return state_->lost;
}

}  // namespace dllm::serve
