#pragma once

#include <mutex>
#include <stop_token>
#include <thread>

namespace dllm::app {

/// Ctrl-C. While something stoppable runs, the first SIGINT requests a stop and the second ends the process with exit
/// code 130; at other times the first one ends it, unless `hold` says that a prompt is being edited. One object per
/// process: signal handlers cannot be given a context.
class Interrupt {
 public:
  /// Throws std::system_error where no thread can be started.
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// Begins something stoppable.
  std::stop_token arm();
  /// It has ended; true if it was interrupted.
  bool disarm();
  bool requested() const;

  /// The terminal is being read: SIGINT only makes the returned descriptor readable (-1 where there is none), for the
  /// reader to poll beside the terminal. An interrupted read would not do: a signal just before it is lost.
  int hold();
  /// The read is over; true if a SIGINT came.
  bool release();

 private:
  void watch();

  std::mutex mutex_;  ///< of source_
  std::stop_source source_;
  std::thread watcher_;
};

}  // namespace dllm::app
