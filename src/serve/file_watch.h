#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "engine/model_files.h"
#include "serve/errors.h"

namespace dllm::serve {

/// Watches the model's files while they are served. After a file was written or only touched, nothing is answered until
/// a thread has compared it with its digest, which was taken after the start; if it is another file, or lost pages, no
/// answer can be right any more, and `on_lost` is called, once. Of a file that was replaced by renaming, the old one is
/// still mapped: that is logged, and nothing else happens.
class FileWatch {
 public:
  /// `log` gets an event and a path (empty: of all files). Both are called in the thread of this object. `after_loss`:
  /// what `on_lost` does, for messages: "the server ends".
  FileWatch(ModelFiles files, const std::string& after_loss,
            std::function<void(const std::string& event, const std::string& path)> log, std::function<void()> on_lost);

  /// Why requests cannot be answered now, with status 503; nullopt: they can. Thread-safe, some microseconds.
  std::optional<ApiError> unfit();

 private:
  enum class State { kGood, kChecking, kLost };
  void work(const std::stop_token& stop);
  void report_replaced();
  bool wait(const std::stop_token& stop);

  ModelFiles files_;
  const std::string lost_text_;
  std::function<void(const std::string&, const std::string&)> log_;
  std::function<void()> on_lost_;
  std::atomic<State> state_{State::kGood};
  std::set<std::string> replaced_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  ///< last: it uses the other members
};

}  // namespace dllm::serve
