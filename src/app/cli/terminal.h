#pragma once

#include <chrono>
#include <iosfwd>
#include <string>
#include <string_view>

#include "dllm/error.h"

namespace dllm::app {

/// A command's streams. `out` carries the result only; `err` carries everything else.
struct Terminal {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool in_tty = false, out_tty = false, err_tty = false;
  bool colour = false;  ///< on stderr
  int width = 80, height = 24;

  /// The process's own streams. NO_COLOR (any non-empty value), TERM=dumb and a stderr that is not a terminal disable
  /// colours.
  static Terminal standard();
  /// Reads the window's size again.
  void measure();
};

/// Columns that UTF-8 text takes on a terminal; invalid bytes count as one.
int display_width(std::string_view text);

/// Control characters (C0 except newline and tab, DEL, C1) shown as \x1b, invalid UTF-8 as U+FFFD: a model's text must
/// not control the terminal.
std::string sanitize(std::string_view text);

/// Decodes the UTF-8 character at the front of `text`; returns its length in bytes, 0 if it is invalid.
std::size_t decode_utf8(std::string_view text, char32_t& character);

/// One line on stderr that overwrites itself, at most ten times a second; silent if stderr is no terminal.
class ProgressLine {
 public:
  explicit ProgressLine(Terminal& terminal, bool enabled = true);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// `fraction` in [0, 1] draws a bar before the text.
  void show(double fraction, std::string_view text);
  void clear();

 private:
  Terminal& terminal_;
  bool enabled_;
  bool visible_ = false;
  std::chrono::steady_clock::time_point last_{};
};

/// Reads the input to its end; for standard input its size is limited. Errors: kIo (closed, too long).
Expected<std::string> read_all(Terminal& terminal);

}  // namespace dllm::app
