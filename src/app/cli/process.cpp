#include "app/cli/process.h"

#include <fcntl.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/os_names.h"
#include "base/os_process.h"
#include "base/output_file.h"

namespace dllm::app {
namespace {

/// Signals whose default action ends the process. Interrupt handles SIGINT; MappedFile handles SIGBUS in a mapped file,
/// and passes others on to here.
constexpr int kEnding[] = {SIGHUP, SIGQUIT, SIGTERM, SIGPIPE, SIGXCPU, SIGALRM, SIGVTALRM, SIGPROF, SIGUSR1, SIGUSR2};
/// The same, of a fault of the thread itself.
constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};

termios cooked{};  ///< meaningful while `changed`
std::atomic<bool> changed{false};
std::atomic<bool> stopped{false};
std::atomic<bool> ending{false};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");

/// Not from the background, where another process has the terminal and the attempt would stop us. Without a controlling
/// terminal neither applies.
void restore_terminal() {
  const pid_t owner = tcgetpgrp(STDIN_FILENO);
  if (changed && (owner < 0 || owner == getpgrp())) tcsetattr(STDIN_FILENO, TCSANOW, &cooked);
}

extern "C" void on_fault(int signal) {
  ending = true;
  restore_terminal();
  remove_temporaries();
  // The default action is restored; the signal is delivered again when this handler returns.
  raise(signal);
}

/// On the main thread. It alone sets the terminal's mode: were it restored by another one, on_stop() or the line editor
/// could change it once more before the process has ended.
extern "C" void on_ending_signal(int signal) {
  if (pass_to_main_thread(signal)) return;
  ::signal(signal, SIG_DFL);
  on_fault(signal);
}

/// Ctrl-Z, or kill -TSTP: restores the terminal for the shell, and our mode when we continue.
extern "C" void on_stop(int signal) {
  const int kept = errno;
  termios ours{};
  const bool restore = changed && tcgetattr(STDIN_FILENO, &ours) == 0;
  restore_terminal();
  struct sigaction by_default{}, own{};
  by_default.sa_handler = SIG_DFL;
  sigaction(signal, &by_default, &own);
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, signal);
  raise(signal);
  pthread_sigmask(SIG_UNBLOCK, &set, &before);  // stops here
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  sigaction(signal, &own, nullptr);
  if (restore) tcsetattr(STDIN_FILENO, TCSANOW, &ours);
  if (ending) restore_terminal();  // another thread has restored it and is about to end the process
  stopped = true;
  errno = kept;
}

/// Unless the parent ignores the signal, or a sanitizer handles it.
void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction before{}, action{};
  if (sigaction(signal, nullptr, &before) != 0 || (before.sa_flags & SA_SIGINFO) != 0 || before.sa_handler != SIG_DFL)
    return;
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

void prepare_process() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    // open() returns the lowest free number, which is this one. The wrong mode makes every use of it an error.
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY) < 0)
      _exit(1);
  remember_main_thread();
  for (const int signal : kEnding) handle(signal, on_ending_signal, 0);
  for (const int signal : kFaults) handle(signal, on_fault, static_cast<int>(SA_RESETHAND));
  handle(SIGTSTP, on_stop, SA_RESTART);
  signal(SIGXFSZ, SIG_IGN);
  prepare_standard_streams();
  prepare_name_lookup();
}

void end_process(int code) noexcept {
  ending = true;
  restore_terminal();
  remove_temporaries();
  _exit(code);
}

TerminalMode::TerminalMode() { changed = tcgetattr(STDIN_FILENO, &cooked) == 0; }
TerminalMode::~TerminalMode() { changed = false; }
bool TerminalMode::resumed() { return stopped.exchange(false); }

}  // namespace dllm::app
