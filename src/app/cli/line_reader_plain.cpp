#include <istream>
#include <ostream>

#include "app/cli/line_reader.h"

// Where libedit is missing: the terminal edits the line, without a history.

namespace dllm::app {

struct LineReader::Editor {};

LineReader::LineReader(Terminal& terminal, Interrupt& interrupt) : terminal_(terminal), interrupt_(interrupt) {}

LineReader::~LineReader() = default;

LineReader::Status LineReader::read(const std::string& prompt, std::string& line) {
  line.clear();
  if (terminal_.in_tty) terminal_.err << prompt << std::flush;
  interrupt_.hold();
  const bool read = static_cast<bool>(std::getline(terminal_.in, line));
  if (interrupt_.release()) {
    terminal_.in.clear();  // an interrupted read of the console is an end of file
    terminal_.err << "\n";
    return Status::kInterrupted;
  }
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return read ? Status::kLine : Status::kEnd;
}

}  // namespace dllm::app
