#include "app/cli/line_reader.h"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cwchar>
#include <istream>
#include <ostream>

#include "app/cli/process.h"

namespace dllm::app {

struct LineReader::Editor {
  EditLine* line = nullptr;
  History* history = nullptr;
  std::string prompt;
  int interrupt = -1;  ///< readable once the prompt has been interrupted

  Editor() {
    // libedit converts bytes by the locale; without UTF-8 it would reject every letter outside ASCII.
    if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    // It echoes to stderr, because standard output is for answers only.
    line = el_init("dllm", stdin, stderr, stderr);
    history = history_init();
    if (!line || !history) return;
    HistEvent event{};
    ::history(history, &event, H_SETSIZE, 1000);
    el_set(line, EL_CLIENTDATA, this);
    el_set(
        line, EL_PROMPT, +[](EditLine* el) -> char* {
          Editor* self = nullptr;
          el_get(el, EL_CLIENTDATA, &self);
          return self->prompt.data();
        });
    el_set(line, EL_EDITOR, "emacs");
    el_set(line, EL_HIST, ::history, history);
    el_set(line, EL_SIGNAL, 0);
    el_set(line, EL_GETCFN, &read_character);
    el_source(line, nullptr);
  }
  ~Editor() {
    if (history) history_end(history);
    if (line) el_end(line);
  }

  /// libedit's own reader would miss a Ctrl-C between the prompt and its read().
  static int read_character(EditLine* el, wchar_t* character) {
    Editor* self = nullptr;
    el_get(el, EL_CLIENTDATA, &self);
    std::mbstate_t state{};
    while (true) {
      pollfd sources[] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                          {.fd = self->interrupt, .events = POLLIN, .revents = 0}};
      const int ready = poll(sources, 2, -1);
      if (ready < 0 && errno != EINTR) return -1;
      if (TerminalMode::resumed()) el_set(el, EL_REFRESH);
      if (ready < 0) continue;
      if (sources[1].revents != 0) return -1;
      if (sources[0].revents == 0) continue;
      char byte = 0;
      const auto count = ::read(STDIN_FILENO, &byte, 1);
      if (count <= 0) return static_cast<int>(count);
      const std::size_t length = std::mbrtowc(character, &byte, 1, &state);
      if (length == static_cast<std::size_t>(-2)) continue;  // in the middle of a character
      if (length == static_cast<std::size_t>(-1)) *character = L'\uFFFD';
      return 1;
    }
  }

  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;
};

LineReader::LineReader(Terminal& terminal, Interrupt& interrupt) : terminal_(terminal), interrupt_(interrupt) {
  if (!terminal.in_tty || !terminal.err_tty) return;
  editor_ = std::make_unique<Editor>();
  if (!editor_->line || !editor_->history) editor_.reset();
}

LineReader::~LineReader() = default;

LineReader::Status LineReader::read(const std::string& prompt, std::string& line) {
  line.clear();
  if (!editor_) {
    if (terminal_.in_tty) terminal_.err << prompt << std::flush;
    return std::getline(terminal_.in, line) ? Status::kLine : Status::kEnd;
  }
  editor_->prompt = prompt;
  editor_->interrupt = interrupt_.hold();
  const TerminalMode mode;  // restores the terminal's current mode if we are ended in between
  // el_gets would show the prompt before it leaves the line mode, and a Ctrl-D typed in between would be lost.
  el_set(editor_->line, EL_PREP_TERM, 1);
  int count = 0;
  const char* text = el_gets(editor_->line, &count);
  const bool interrupted = interrupt_.release();
  if (interrupted) {
    el_reset(editor_->line);
    terminal_.err << "\n";
    return Status::kInterrupted;
  }
  if (text == nullptr || count <= 0) return Status::kEnd;
  line.assign(text, static_cast<std::size_t>(count));
  if (line.find_first_not_of(" \n") != std::string::npos) {
    HistEvent event{};
    history(editor_->history, &event, H_ENTER, line.c_str());
  }
  while (!line.empty() && line.back() == '\n') line.pop_back();
  return Status::kLine;
}

}  // namespace dllm::app
