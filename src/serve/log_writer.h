#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "serve/json.h"
#include "serve/server.h"

namespace dllm::serve {

/// A line of the log without its line feed. `form` is not kNone.
std::string log_line(const Json& fields, LogForm form);

/// Writes lines in a thread of its own, so that a log that nobody reads (a full pipe, a stalled disk) delays no
/// request. Thread-safe.
class LogWriter {
 public:
  /// `most`: bytes that may wait; further lines are lost, and `notice` of their number is written when there is room.
  LogWriter(LogSink out, std::function<std::string(std::uint64_t lost)> notice, std::size_t most = 1U << 20U);
  /// Waits a second for the lines that are left. A thread that is still blocked then is left behind.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  /// `line` has no line feed.
  void write(std::string line);
  std::uint64_t lost() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dllm::serve
