// What emscripten's C library takes from its own loader, made of three functions that a page gives
// (web/src/wasm/system.ts). There are no files, processes and sockets: calls that would need them fail with ENOSYS.

#include <sched.h>
#include <sys/random.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>

#define DLLM_IMPORT(name) __attribute__((import_module("env"), import_name(name)))

extern "C" {

DLLM_IMPORT("dllm_random") void dllm_random(void* to, std::size_t count);
DLLM_IMPORT("dllm_now") double dllm_now();    ///< milliseconds since some moment, never falling
DLLM_IMPORT("dllm_date") double dllm_date();  ///< milliseconds since 1970

int getentropy(void* to, std::size_t count) {  // of libc++'s std::random_device
  dllm_random(to, count);
  return 0;
}
ssize_t getrandom(void* to, std::size_t count, unsigned /*flags*/) {
  dllm_random(to, count);
  return static_cast<ssize_t>(count);
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  const double milliseconds = clock == CLOCK_REALTIME ? dllm_date() : dllm_now();
  const auto seconds = static_cast<std::int64_t>(milliseconds / 1000);
  time->tv_sec = static_cast<time_t>(seconds);
  time->tv_nsec = static_cast<long>((milliseconds - static_cast<double>(seconds) * 1000) * 1e6);
  return 0;
}
time_t time(time_t* to) {
  const auto now = static_cast<time_t>(dllm_date() / 1000);
  if (to != nullptr) *to = now;
  return now;
}

[[noreturn]] void abort() { __builtin_trap(); }
[[noreturn]] void __assert_fail(const char* expression, const char* file, int line, const char* function) {
  std::fprintf(stderr, "%s:%d: %s: assertion failed: %s\n", file, line, function, expression);
  abort();
}

double emscripten_get_now() { return dllm_now(); }
std::size_t emscripten_get_heap_max() { return 0xffff0000u; }
int sched_getaffinity(pid_t, std::size_t, cpu_set_t*) {
  errno = ENOSYS;
  return -1;
}
int __sched_cpucount(std::size_t, const cpu_set_t*) { return 1; }
int flock(int, int) {
  errno = ENOSYS;
  return -1;
}
void __call_sighandler(void (*handler)(int), int signal) { handler(signal); }

// Signatures are those of emscripten's syscall_arch.h: a call through another one is a trap.
long __syscall_open(long, long, ...) { return -ENOSYS; }
long __syscall_openat(long, long, long, ...) { return -ENOSYS; }
long __syscall_fcntl64(long, long, ...) { return -ENOSYS; }
long __syscall_ioctl(long, long, ...) { return -ENOSYS; }
long __syscall_chmod(long, long) { return -ENOSYS; }
long __syscall_fchmod(long, long) { return -ENOSYS; }
long __syscall_mkdir(long, long) { return -ENOSYS; }
long __syscall_getcwd(long, long) { return -ENOSYS; }
long __syscall_stat64(long, long) { return -ENOSYS; }
long __syscall_lstat64(long, long) { return -ENOSYS; }
long __syscall_fstat64(long, long) { return -ENOSYS; }
long __syscall_fstatat64(long, long, long, long) { return -ENOSYS; }
long __syscall_getdents64(long, long, long) { return -ENOSYS; }
long __syscall_unlinkat(long, long, long) { return -ENOSYS; }
long __syscall_renameat(long, long, long, long) { return -ENOSYS; }
long __syscall_linkat(long, long, long, long, long) { return -ENOSYS; }
long __syscall_unlink(long) { return -ENOSYS; }
long __syscall_rename(long, long) { return -ENOSYS; }
long __syscall_fchmodat(long, long, long, ...) { return -ENOSYS; }
long __syscall_ftruncate64(long, long, long) { return -ENOSYS; }
long __syscall_utimensat(long, long, long, long) { return -ENOSYS; }
long __syscall_madvise(long, long, long) { return 0; }  // advice
long __syscall_geteuid32() { return 0; }
// Of files; the C library itself maps memory without one.
long _mmap_js(long, long, long, long, long, long, int*) { return -ENOSYS; }
long _munmap_js(long, long, long, long, long, long) { return -ENOSYS; }
}
