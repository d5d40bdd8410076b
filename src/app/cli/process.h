#pragma once

namespace dllm::app {

/// Call this first in main(). Opens the standard descriptors that the parent has closed, so that none of our files
/// becomes "standard input": reading and writing them fails, except that messages to a closed standard error are
/// discarded. Makes signals that end the process first restore the terminal and remove temporary files; signals that
/// the parent ignores (nohup) stay ignored. Exceeding `ulimit -f` becomes an error of write(). Names are looked up as
/// base/os_names.h says.
void prepare_process();

/// Restores the terminal, removes temporary files and ends the process. Async-signal-safe.
[[noreturn]] void end_process(int code) noexcept;

/// During its lifetime, standard input may be in another mode than at construction, which is restored by every signal
/// that ends or stops the process. One at a time.
class TerminalMode {
 public:
  TerminalMode();
  ~TerminalMode();
  TerminalMode(const TerminalMode&) = delete;
  TerminalMode& operator=(const TerminalMode&) = delete;

  /// Whether the process was stopped and continued since the last call, so that the line must be drawn again.
  static bool resumed();
};

}  // namespace dllm::app
