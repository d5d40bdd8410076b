#include "serve/file_watch.h"

#include <chrono>
#include <utility>

#include "base/os_process.h"

namespace dllm::serve {

FileWatch::FileWatch(ModelFiles files, const std::string& after_loss,
                     std::function<void(const std::string&, const std::string&)> log, std::function<void()> on_lost)
    : files_(std::move(files)),
      lost_text_("the model's file has changed: " + after_loss),
      log_(std::move(log)),
      on_lost_(std::move(on_lost)),
      thread_([this](const std::stop_token& stop) { work(stop); }) {}

std::optional<ApiError> FileWatch::unfit() {
  if (state_ == State::kGood && files_.state() != MappedFile::State::kSame) {
    State good = State::kGood;
    state_.compare_exchange_strong(good, State::kChecking);
    wake_.notify_one();
  }
  switch (state_) {
    case State::kGood:
      return std::nullopt;
    case State::kChecking:
      return ApiError{503, "the model's file was touched: it is being compared with what was loaded", "", ""};
    case State::kLost:
      return ApiError{503, lost_text_, "", ""};
  }
  return std::nullopt;
}

bool FileWatch::wait(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, stop, std::chrono::seconds(1), [this] { return state_ == State::kChecking; });
  return !stop.stop_requested();
}

void FileWatch::report_replaced() {
  for (const std::string& path : files_.replaced())
    if (replaced_.insert(path).second)
      log_("the model's file was replaced: the one that was loaded is still served", path);
}

void FileWatch::work(const std::stop_token& stop) {
  lower_priority(19);  // answers come first
  bool known = files_.record(stop);
  if (known) log_("the digest of the model's file is known: it may be touched", "");
  while (known && wait(stop)) {
    report_replaced();
    unfit();
    if (state_ != State::kChecking) continue;
    known = files_.state() != MappedFile::State::kChanged && files_.verify(stop);
    if (!known) break;
    log_("the model's file was touched, and is the same", "");
    state_ = State::kGood;
  }
  if (stop.stop_requested()) return;
  state_ = State::kLost;
  log_(lost_text_, "");
  on_lost_();
}

}  // namespace dllm::serve
