#include "app/cli/interrupt.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <csignal>
#include <utility>

#include "app/cli/exit_code.h"
#include "app/cli/process.h"
#include "base/os_process.h"

namespace dllm::app {
namespace {

enum Mode { kExit, kStop, kStopping, kHold, kHeld };

std::atomic<int> mode{kExit};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");
/// Counts armed periods, so that a late wake-up does not stop the next one.
std::atomic<unsigned char> period{0};
int pipe_ends[2] = {-1, -1};
int held_ends[2] = {-1, -1};

/// stop_source::request_stop() is not async-signal-safe, so the handler only wakes a thread that calls it.
extern "C" void on_sigint(int) {
  int expected = kStop;
  if (mode.compare_exchange_strong(expected, kStopping)) {
    const unsigned char byte = period;
    // A full pipe is impossible: one byte per armed period. Other failures could not be handled anyway.
    if (write(pipe_ends[1], &byte, 1) < 0) end_process(kExitInterrupted);
    return;
  }
  expected = kHold;
  if (mode.compare_exchange_strong(expected, kHeld)) {
    const unsigned char byte = 0;
    if (write(held_ends[1], &byte, 1) < 0) end_process(kExitInterrupted);
    return;
  }
  if (expected == kHeld) return;
  end_process(kExitInterrupted);
}

void close_pipes() {
  for (int* ends : {pipe_ends, held_ends})
    for (int i = 0; i < 2; ++i)
      if (ends[i] >= 0) close(std::exchange(ends[i], -1));
}

}  // namespace

Interrupt::Interrupt() {
  assert(pipe_ends[0] < 0);
  if (!open_pipe(pipe_ends, /*blocking=*/true)) return;  // then SIGINT keeps its default action
  if (!open_pipe(held_ends, /*blocking=*/false)) {
    close_pipes();
    return;
  }
  try {
    watcher_ = std::thread([this] { watch(); });
  } catch (...) {
    close_pipes();
    throw;
  }
  struct sigaction action{};
  action.sa_handler = on_sigint;  // no SA_RESTART: a read of the terminal must return
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

Interrupt::~Interrupt() {
  if (!watcher_.joinable()) return;
  std::signal(SIGINT, SIG_DFL);
  close(pipe_ends[1]);
  watcher_.join();
  pipe_ends[1] = -1;
  close_pipes();
}

void Interrupt::watch() {
  // The signal must be delivered to a thread that reads the terminal, not to this one.
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

int Interrupt::hold() {
  mode = kHold;
  return held_ends[0];
}

bool Interrupt::release() {
  if (mode.exchange(kExit) != kHeld) return false;
  // The handler may still be about to write, on another thread: its byte must not end the next prompt.
  pollfd held{.fd = held_ends[0], .events = POLLIN, .revents = 0};
  unsigned char byte = 0;
  while (read(held_ends[0], &byte, 1) != 1) poll(&held, 1, -1);
  return true;
}

}  // namespace dllm::app
