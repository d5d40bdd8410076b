#pragma once

namespace dllm::app {

/// To be called first in main(). Opens the standard descriptors that the parent has closed, so that no file of ours
/// becomes "standard input": reading and writing them fails, except that messages to a closed standard error vanish.
/// Makes signals that end the process restore the terminal and remove temporary files before; those that the parent
/// ignores (nohup) stay ignored. A file beyond `ulimit -f` becomes an error of write().
void prepare_process();

/// Restores the terminal, removes temporary files and ends the process. Async-signal-safe.
[[noreturn]] void end_process(int code) noexcept;

/// While it lives, standard input may be in another mode than it is now, which every signal that ends or stops the
/// process restores. One at a time.
class TerminalMode {
 public:
  TerminalMode();
  ~TerminalMode();
  TerminalMode(const TerminalMode&) = delete;
  TerminalMode& operator=(const TerminalMode&) = delete;

  /// Whether the process was stopped and has gone on since the last call: the line has to be drawn again.
  static bool resumed();
};

}  // namespace dllm::app
