#include "app/cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <iterator>

#include "base/input_file.h"

namespace dllm::app {

Terminal Terminal::standard() {
  Terminal terminal{std::cin, std::cout, std::cerr};
  terminal.in_tty = isatty(STDIN_FILENO) == 1;
  terminal.out_tty = isatty(STDOUT_FILENO) == 1;
  terminal.err_tty = isatty(STDERR_FILENO) == 1;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  terminal.colour = terminal.err_tty && !dumb && (no_color == nullptr || *no_color == '\0');
  terminal.measure();
  return terminal;
}

void Terminal::measure() {
  winsize size{};
  if (err_tty && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    width = size.ws_col;
    height = size.ws_row;
  }
}

std::size_t decode_utf8(std::string_view text, char32_t& character) {
  utf8proc_int32_t code = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto length =
      utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(std::min<std::size_t>(text.size(), 4)), &code);
  if (length <= 0) return 0;
  character = static_cast<char32_t>(code);
  return static_cast<std::size_t>(length);
}

int display_width(std::string_view text) {
  int columns = 0;
  while (!text.empty()) {
    char32_t character = 0;
    const std::size_t length = decode_utf8(text, character);
    columns += length == 0 ? 1 : utf8proc_charwidth(static_cast<utf8proc_int32_t>(character));
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return columns;
}

std::string sanitize(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    char32_t c = 0;
    const std::size_t length = decode_utf8(text, c);
    if (length == 0)
      result += "\uFFFD";
    else if ((c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0))
      result += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    else
      result += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

ProgressLine::ProgressLine(Terminal& terminal, bool enabled)
    : terminal_(terminal), enabled_(enabled && terminal.err_tty) {}

void ProgressLine::show(double fraction, std::string_view text) {
  if (!enabled_) return;
  const auto now = std::chrono::steady_clock::now();
  if (visible_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  visible_ = true;
  terminal_.measure();
  constexpr int kBar = 16;
  const int filled = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * kBar);
  std::string line;
  for (int i = 0; i < kBar; ++i) line += i < filled ? "█" : "░";
  line += fmt::format(" {:3.0f} % ", std::clamp(fraction, 0.0, 1.0) * 100);
  int room = terminal_.width - 1 - display_width(line);
  for (std::string_view rest = text; !rest.empty();) {
    char32_t c = 0;
    const std::size_t length = std::max<std::size_t>(decode_utf8(rest, c), 1);
    room -= display_width(rest.substr(0, length));
    if (room < 0) break;
    line += rest.substr(0, length);
    rest.remove_prefix(length);
  }
  // One write: std::cerr flushes after every <<.
  terminal_.err << "\r\x1b[2K" + line << std::flush;
}

void ProgressLine::clear() {
  if (!visible_) return;
  terminal_.err << "\r\x1b[2K" << std::flush;
  visible_ = false;
}

Expected<std::string> read_all(Terminal& terminal) {
  if (&terminal.in == &std::cin) return read_standard_input();
  return std::string(std::istreambuf_iterator<char>(terminal.in), {});
}

}  // namespace dllm::app
