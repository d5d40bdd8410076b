#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>

namespace dllm {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Where a component reports messages for people. Passed by reference, never global; the default prints warnings and
/// errors and drops the rest. Thread-safe if the sink is.
class Log {
 public:
  using Sink = std::function<void(LogLevel, const std::string& line)>;

  Log();  ///< warnings and errors to stderr
  explicit Log(Sink sink) : sink_(std::move(sink)) {}

  void write(LogLevel level, const std::string& line) const { sink_(level, line); }

  template <class... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  Sink sink_;
};

}  // namespace dllm
