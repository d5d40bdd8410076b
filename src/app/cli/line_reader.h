#pragma once

#include <memory>
#include <optional>
#include <string>

#include "app/cli/interrupt.h"
#include "app/cli/terminal.h"

namespace dllm::app {

/// Reads lines from a person or a pipe: with editing and history on a terminal, plain otherwise.
class LineReader {
 public:
  LineReader(Terminal& terminal, Interrupt& interrupt);
  ~LineReader();

  enum class Status { kLine, kInterrupted, kEnd };
  /// One line without its newline. `prompt` is shown on terminals only.
  Status read(const std::string& prompt, std::string& line);

 private:
  struct Editor;
  Terminal& terminal_;
  Interrupt& interrupt_;
  std::unique_ptr<Editor> editor_;  ///< null: plain
};

}  // namespace dllm::app
