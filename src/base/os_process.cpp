#include "base/os_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#if defined(_WIN32)
#include <cpuid.h>
#include <io.h>
#include <windows.h>
// Its types are those of the header above.
#include <bcrypt.h>
#else
#include <pthread.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/utsname.h>
#endif
#if defined(__linux__)
#include <sched.h>
#include <sys/resource.h>
#endif

#include <algorithm>
#include <string_view>

namespace dllm {

#if defined(_WIN32)

bool random_bytes(void* to, std::size_t count) {
  errno = EIO;
  return BCryptGenRandom(nullptr, static_cast<PUCHAR>(to), static_cast<ULONG>(count),
                         BCRYPT_USE_SYSTEM_PREFERRED_RNG) >= 0;
}

void lower_priority(int nice) {
  ::SetThreadPriority(::GetCurrentThread(), nice < 15 ? THREAD_PRIORITY_BELOW_NORMAL : THREAD_PRIORITY_LOWEST);
}

int allowed_processors() {
  DWORD_PTR own = 0, all = 0;
  return ::GetProcessAffinityMask(::GetCurrentProcess(), &own, &all) != 0 ? __builtin_popcountll(own) : 0;
}

HostSystem host_system() {
  // GetVersionEx() tells programs without a list of systems in their manifest that they run on Windows 8.
  using Version = LONG(WINAPI*)(OSVERSIONINFOW*);
  const auto version = reinterpret_cast<Version>(
      reinterpret_cast<void*>(::GetProcAddress(::GetModuleHandleW(L"ntdll"), "RtlGetVersion")));
  OSVERSIONINFOW found{};
  found.dwOSVersionInfoSize = sizeof found;
  if (version == nullptr || version(&found) != 0) return {"Windows", "unknown", "x86_64"};
  return {"Windows",
          std::to_string(found.dwMajorVersion) + "." + std::to_string(found.dwMinorVersion) + "." +
              std::to_string(found.dwBuildNumber),
          "x86_64"};
}

std::string processor_name() {
  constexpr unsigned kBrand = 0x80000002;  // three leaves of 16 characters
  unsigned words[12] = {};
  for (unsigned i = 0; i < 3; ++i)
    if (__get_cpuid(kBrand + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2], &words[4 * i + 3]) == 0) return "";
  const std::string_view text(reinterpret_cast<const char*>(words), sizeof words);
  const std::string_view name = text.substr(0, std::min(text.find('\0'), text.size()));
  const std::size_t begin = std::min(name.find_first_not_of(' '), name.size());
  return std::string(name.substr(begin, name.find_last_not_of(' ') + 1 - begin));
}

std::int64_t memory_size() {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  return ::GlobalMemoryStatusEx(&status) != 0 ? static_cast<std::int64_t>(status.ullTotalPhys) : 0;
}

void prepare_standard_streams() {
  for (const int fd : {0, 1, 2}) {
    ::_setmode(fd, _O_BINARY);
    DWORD mode = 0;
    const auto console = reinterpret_cast<HANDLE>(::_get_osfhandle(fd));
    if (fd > 0 && ::GetConsoleMode(console, &mode) != 0)
      ::SetConsoleMode(console, mode | ENABLE_PROCESSED_OUTPUT | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
  }
  ::SetConsoleOutputCP(CP_UTF8);
  ::SetConsoleCP(CP_UTF8);
}

void remember_main_thread() {}

bool pass_to_main_thread(int /*signal*/) { return false; }

bool open_pipe(int ends[2], bool /*blocking*/) { return ::_pipe(ends, 64, _O_BINARY | _O_NOINHERIT) == 0; }

#else

bool random_bytes(void* to, std::size_t count) {
#if defined(__APPLE__)
  constexpr std::size_t kMost = 256;
  for (auto* at = static_cast<char*>(to); count > 0;) {
    const std::size_t piece = std::min(count, kMost);
    if (::getentropy(at, piece) != 0) return false;
    at += piece;
    count -= piece;
  }
  return true;
#else
  for (auto* at = static_cast<char*>(to); count > 0;) {
    const ssize_t drawn = ::getrandom(at, count, 0);
    if (drawn < 0 && errno == EINTR) continue;
    if (drawn <= 0) return false;
    at += drawn;
    count -= static_cast<std::size_t>(drawn);
  }
  return true;
#endif
}

void lower_priority([[maybe_unused]] int nice) {
#if defined(__linux__)
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), nice);  // Linux has a nice value for each thread
#elif defined(__APPLE__)
  ::pthread_set_qos_class_self_np(nice < 15 ? QOS_CLASS_UTILITY : QOS_CLASS_BACKGROUND, 0);
#endif
}

int allowed_processors() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return 0;
}

HostSystem host_system() {
  utsname found{};
  ::uname(&found);
  return {found.sysname, found.release, found.machine};
}

std::string processor_name() { return ""; }

std::int64_t memory_size() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? std::int64_t{pages} * page : 0;
}

void prepare_standard_streams() {}

namespace {
pthread_t main_thread{};
}  // namespace

void remember_main_thread() { main_thread = ::pthread_self(); }

bool pass_to_main_thread(int signal) {
  return ::pthread_equal(::pthread_self(), main_thread) == 0 && ::pthread_kill(main_thread, signal) == 0;
}

bool open_pipe(int ends[2], bool blocking) {
#if defined(__linux__)
  return ::pipe2(ends, O_CLOEXEC | (blocking ? 0 : O_NONBLOCK)) == 0;
#else
  if (::pipe(ends) != 0) return false;
  bool done = blocking || ::fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
  for (int i = 0; i < 2; ++i) done = done && ::fcntl(ends[i], F_SETFD, FD_CLOEXEC) == 0;
  if (done) return true;
  const int code = errno;
  for (int i = 0; i < 2; ++i) ::close(ends[i]);
  errno = code;
  return false;
#endif
}

#endif

}  // namespace dllm
