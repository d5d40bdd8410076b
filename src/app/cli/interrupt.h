#pragma once

#include <mutex>
#include <stop_token>
#include <thread>

namespace dllm::app {

/// Ctrl-C. While a cancellable task runs, the first SIGINT requests a stop and the second ends the process with exit
/// code 130; at other times the first one ends it, unless `hold` says that a prompt is being edited. One object per
/// process, because signal handlers have no context argument.
class Interrupt {
 public:
  /// Throws std::system_error if no thread can be started.
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// Starts a cancellable task.
  std::stop_token arm();
  /// Ends it; true if it was interrupted.
  bool disarm();
  bool requested() const;

  /// The terminal is being read: SIGINT only makes the returned descriptor readable (-1 if there is none), which the
  /// reader polls together with the terminal. Interrupting the read would not work: a signal just before it would be
  /// lost.
  int hold();
  /// The read has ended; true if a SIGINT was received.
  bool release();

 private:
  void watch();

  std::mutex mutex_;  ///< of source_
  std::stop_source source_;
  std::thread watcher_;
};

}  // namespace dllm::app
