#include "app/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <csignal>

#include "app/exit_code.h"

namespace dllm::app {
namespace {

enum Mode { kExit, kStop, kStopping, kHold, kHeld };

std::atomic<int> mode{kExit};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");
/// Counts armed periods, so that a wake-up that is late does not stop the next one.
std::atomic<unsigned char> period{0};
int pipe_ends[2] = {-1, -1};

/// stop_source::request_stop() is not async-signal-safe, so the handler only wakes a thread that calls it.
extern "C" void on_sigint(int) {
  int expected = kStop;
  if (mode.compare_exchange_strong(expected, kStopping)) {
    const unsigned char byte = period;
    // A full pipe cannot happen: one byte per armed period. Nothing could be done about another failure.
    if (write(pipe_ends[1], &byte, 1) < 0) _exit(kExitInterrupted);
    return;
  }
  expected = kHold;
  if (mode.compare_exchange_strong(expected, kHeld) || expected == kHeld) return;
  _exit(kExitInterrupted);
}

}  // namespace

Interrupt::Interrupt() {
  assert(pipe_ends[0] < 0);
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return;  // then SIGINT keeps its default action
  watcher_ = std::thread([this] { watch(); });
  struct sigaction action{};
  action.sa_handler = on_sigint;  // no SA_RESTART: a read of the terminal shall return
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

Interrupt::~Interrupt() {
  if (!watcher_.joinable()) return;
  std::signal(SIGINT, SIG_DFL);
  close(pipe_ends[1]);
  watcher_.join();
  close(pipe_ends[0]);
  pipe_ends[0] = pipe_ends[1] = -1;
}

void Interrupt::watch() {
  // The signal shall reach a thread that reads the terminal, not this one.
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGINT);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  unsigned char byte = 0;
  while (read(pipe_ends[0], &byte, 1) > 0) {
    const std::lock_guard lock(mutex_);
    if (byte == period) source_.request_stop();
  }
}

std::stop_token Interrupt::arm() {
  const std::lock_guard lock(mutex_);
  source_ = std::stop_source();
  ++period;
  mode = kStop;
  return source_.get_token();
}

bool Interrupt::disarm() { return mode.exchange(kExit) == kStopping; }

bool Interrupt::requested() const { return mode == kStopping; }

void Interrupt::hold() { mode = kHold; }

bool Interrupt::release() { return mode.exchange(kExit) == kHeld; }

}  // namespace dllm::app
