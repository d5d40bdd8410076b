// Memory, signals and the console: POSIX' calls by those of Windows.

#include <errno.h>
#include <io.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/os_windows/posix_path.h"

using dllm::windows::fail;
using dllm::windows::handle_of;

namespace {

constexpr int kSignals = 32;
struct sigaction actions[kSignals];
std::atomic<bool> handled[kSignals];

/// Of signals that a thread of the console's or a fault brings.
bool deliver(int signal, siginfo_t info) {
  if (!handled[signal]) return false;
  const struct sigaction action = actions[signal];
  if ((static_cast<unsigned>(action.sa_flags) & SA_RESETHAND) != 0) handled[signal] = false;
  if ((action.sa_flags & SA_SIGINFO) != 0)
    action.sa_sigaction(signal, &info, nullptr);
  else
    action.sa_handler(signal);
  return handled[signal];
}

/// FALSE: the console's own handler ends the process.
BOOL WINAPI on_console(DWORD event) {
  const int signal = event == CTRL_C_EVENT ? SIGINT : event == CTRL_BREAK_EVENT ? SIGTERM : SIGHUP;
  return deliver(signal, {}) ? TRUE : FALSE;
}

/// Whether a page of a mapped file is what could not be read: the disk, or the machine that has it, no longer gives it.
/// wine calls it an access violation, as Linux lets files be truncated that are mapped.
bool is_lost_page(const EXCEPTION_RECORD& record) {
  if (record.NumberParameters < 2) return false;
  if (record.ExceptionCode == EXCEPTION_IN_PAGE_ERROR) return true;
  MEMORY_BASIC_INFORMATION found{};
  return record.ExceptionCode == EXCEPTION_ACCESS_VIOLATION && record.ExceptionInformation[0] == 0 &&
         ::VirtualQuery(reinterpret_cast<void*>(record.ExceptionInformation[1]), &found, sizeof found) != 0 &&
         found.Type == MEM_MAPPED && found.Protect == PAGE_READONLY;
}

LONG CALLBACK on_fault(EXCEPTION_POINTERS* fault) {
  const EXCEPTION_RECORD& record = *fault->ExceptionRecord;
  if (!is_lost_page(record)) return EXCEPTION_CONTINUE_SEARCH;
  return deliver(SIGBUS, {BUS_ADRERR, reinterpret_cast<void*>(record.ExceptionInformation[1])})
             ? EXCEPTION_CONTINUE_EXECUTION
             : EXCEPTION_CONTINUE_SEARCH;
}

/// Zeros in the place of a whole view: a part of one cannot be replaced. Other threads that read it in between get an
/// access violation, and try again while this is going on.
std::atomic<std::uintptr_t> replaced_begin{0}, replaced_end{0};

LONG CALLBACK on_gap(EXCEPTION_POINTERS* fault) {
  const EXCEPTION_RECORD& record = *fault->ExceptionRecord;
  if (record.ExceptionCode != EXCEPTION_ACCESS_VIOLATION || record.NumberParameters < 2)
    return EXCEPTION_CONTINUE_SEARCH;
  const auto address = static_cast<std::uintptr_t>(record.ExceptionInformation[1]);
  if (record.ExceptionInformation[0] != 0 || address < replaced_begin || address >= replaced_end)
    return EXCEPTION_CONTINUE_SEARCH;
  MEMORY_BASIC_INFORMATION found{};
  for (;;) {
    if (::VirtualQuery(reinterpret_cast<void*>(address), &found, sizeof found) == 0) return EXCEPTION_CONTINUE_SEARCH;
    if (found.Type == MEM_MAPPED) return EXCEPTION_CONTINUE_SEARCH;  // of a later file, at the same place
    if (found.State == MEM_COMMIT) return EXCEPTION_CONTINUE_EXECUTION;
    ::Sleep(0);
  }
}

void* replace_view(void* address, size_t bytes) {
  MEMORY_BASIC_INFORMATION found{};
  if (::VirtualQuery(address, &found, sizeof found) == 0) return MAP_FAILED;
  if (found.Type == MEM_PRIVATE) return address;  // another thread was first
  auto* const base = static_cast<char*>(found.AllocationBase);
  const auto size = static_cast<SIZE_T>(static_cast<char*>(address) + bytes - base);
  replaced_begin = reinterpret_cast<std::uintptr_t>(base);
  replaced_end = replaced_begin + size;
  if (::UnmapViewOfFile(base) == 0) return MAP_FAILED;
  return ::VirtualAlloc(base, size, MEM_RESERVE | MEM_COMMIT, PAGE_READONLY) != nullptr ? address : MAP_FAILED;
}

HANDLE console_of(int fd) { return fd == 0 ? ::GetStdHandle(STD_INPUT_HANDLE) : handle_of(fd); }

}  // namespace

extern "C" {

int _dowildcard = 0;  // a question is no pattern for names of files

void* mmap(void* address, size_t bytes, int /*protection*/, int flags, int fd, off_t /*at*/) {
  if ((flags & MAP_FIXED) != 0) return replace_view(address, bytes);
  const HANDLE mapping = ::CreateFileMappingW(handle_of(fd), nullptr, PAGE_READONLY, 0, 0, nullptr);
  if (mapping == nullptr) return fail(), MAP_FAILED;
  void* const view = ::MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, bytes);
  const DWORD error = ::GetLastError();
  ::CloseHandle(mapping);  // the view keeps it
  return view != nullptr ? view : (fail(error), MAP_FAILED);
}
int munmap(void* address, size_t /*bytes*/) {
  return ::UnmapViewOfFile(address) != 0 || ::VirtualFree(address, 0, MEM_RELEASE) != 0 ? 0 : fail();
}
/// Takes the pages out of the process' memory, which unlocking pages that are not locked does.
int madvise(void* address, size_t bytes, int /*advice*/) {
  ::VirtualUnlock(address, bytes);
  return 0;
}
long sysconf(int /*name*/) {
  SYSTEM_INFO info{};
  ::GetSystemInfo(&info);
  return static_cast<long>(info.dwPageSize);
}

int sigaction(int signal, const struct sigaction* action, struct sigaction* before) {
  if (signal != SIGINT && signal != SIGTERM && signal != SIGHUP && signal != SIGBUS) {
    errno = EINVAL;
    return -1;
  }
  if (before != nullptr) {
    *before = {};
    if (handled[signal]) *before = actions[signal];
  }
  if (action == nullptr) return 0;
  if (signal == SIGBUS) {
    [[maybe_unused]] static const void* const faults[] = {::AddVectoredExceptionHandler(1, &on_fault),
                                                          ::AddVectoredExceptionHandler(1, &on_gap)};
  } else {
    [[maybe_unused]] static const BOOL console = ::SetConsoleCtrlHandler(&on_console, TRUE);
  }
  handled[signal] = false;
  actions[signal] = *action;
  handled[signal] = (action->sa_flags & SA_SIGINFO) != 0 || action->sa_handler != SIG_DFL;
  return 0;
}
int sigemptyset(sigset_t* set) {
  *set = 0;
  return 0;
}
int sigaddset(sigset_t* set, int signal) {
  *set |= sigset_t{1} << signal;
  return 0;
}
/// By Knuth, Morris and Pratt: the time grows with the sum of both sizes, as glibc's does.
void* memmem(const void* text, size_t size, const void* part, size_t part_size) {
  const auto* const bytes = static_cast<const unsigned char*>(text);
  const auto* const wanted = static_cast<const unsigned char*>(part);
  if (part_size == 0) return const_cast<void*>(text);
  std::vector<size_t> same(part_size);  // the longest proper beginning of `part` that ends at each place
  for (size_t i = 1, length = 0; i < part_size; same[i++] = length) {
    while (length > 0 && wanted[i] != wanted[length]) length = same[length - 1];
    if (wanted[i] == wanted[length]) ++length;
  }
  for (size_t i = 0, length = 0; i < size; ++i) {
    while (length > 0 && bytes[i] != wanted[length]) length = same[length - 1];
    if (bytes[i] == wanted[length]) ++length;
    if (length == part_size) return const_cast<unsigned char*>(bytes + i + 1 - part_size);
  }
  return nullptr;
}

int pthread_atfork(void (*)(), void (*)(), void (*)()) { return 0; }
pid_t tcgetpgrp(int /*fd*/) { return -1; }  // nothing else has the console
pid_t getpgrp(void) { return 0; }

int tcgetattr(int fd, termios* mode) { return ::GetConsoleMode(console_of(fd), &mode->mode) != 0 ? 0 : fail(); }
int tcsetattr(int fd, int /*when*/, const termios* mode) {
  return ::SetConsoleMode(console_of(fd), mode->mode) != 0 ? 0 : fail();
}
int ioctl(int fd, int /*request*/, winsize* size) {
  CONSOLE_SCREEN_BUFFER_INFO info{};
  if (::GetConsoleScreenBufferInfo(handle_of(fd), &info) == 0) return fail();
  size->ws_col = static_cast<unsigned short>(info.srWindow.Right - info.srWindow.Left + 1);
  size->ws_row = static_cast<unsigned short>(info.srWindow.Bottom - info.srWindow.Top + 1);
  return 0;
}

int poll(pollfd* sources, unsigned count, int milliseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  for (;;) {
    int ready = 0;
    for (unsigned i = 0; i < count; ++i) {
      DWORD bytes = 0;
      const bool ended = ::PeekNamedPipe(handle_of(sources[i].fd), nullptr, 0, nullptr, &bytes, nullptr) == 0;
      sources[i].revents = ended || bytes > 0 ? POLLIN : 0;
      ready += sources[i].revents != 0 ? 1 : 0;
    }
    if (ready > 0 || (milliseconds >= 0 && std::chrono::steady_clock::now() >= end)) return ready;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // extern "C"
