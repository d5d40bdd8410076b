// What glibc 2.28 lacks and the compiler's and Debian's libraries call, for programs that scripts/glibc_stubs.py links
// for that version. Each function is hidden: a driver that the program loads must go on finding the C library's own.
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#pragma GCC visibility push(hidden)
extern "C" {

// stat() and its kin became functions of the library in 2.33; before, these were what the headers called.
int __xstat(int, const char*, struct stat*) __attribute__((visibility("default")));
int __lxstat(int, const char*, struct stat*) __attribute__((visibility("default")));
int __fxstat(int, int, struct stat*) __attribute__((visibility("default")));
int __fxstatat(int, int, const char*, struct stat*, int) __attribute__((visibility("default")));
}

namespace {
#ifdef __x86_64__
constexpr int kStatVersion = 1;  // _STAT_VER of 2.28's <bits/stat.h>
#else
constexpr int kStatVersion = 0;
#endif
static_assert(sizeof(struct stat) == sizeof(struct stat64));  // one layout for both names
}  // namespace

extern "C" {

int stat(const char* path, struct stat* out) { return __xstat(kStatVersion, path, out); }
int lstat(const char* path, struct stat* out) { return __lxstat(kStatVersion, path, out); }
int fstat(int file, struct stat* out) { return __fxstat(kStatVersion, file, out); }
int fstatat(int folder, const char* path, struct stat* out, int flags) {
  return __fxstatat(kStatVersion, folder, path, out, flags);
}
int stat64(const char* path, struct stat64* out) { return stat(path, reinterpret_cast<struct stat*>(out)); }
int lstat64(const char* path, struct stat64* out) { return lstat(path, reinterpret_cast<struct stat*>(out)); }
int fstat64(int file, struct stat64* out) { return fstat(file, reinterpret_cast<struct stat*>(out)); }
int fstatat64(int folder, const char* path, struct stat64* out, int flags) {
  return fstatat(folder, path, reinterpret_cast<struct stat*>(out), flags);
}

pid_t gettid() { return static_cast<pid_t>(syscall(SYS_gettid)); }  // 2.30

// 2.32: nonzero while there is one thread. Zero is always right, and costs an atomic operation.
char __libc_single_threaded = 0;

// 2.36. getrandom() blocks until the system has random numbers, and may be interrupted then.
void arc4random_buf(void* out, size_t bytes) {
  auto* at = static_cast<unsigned char*>(out);
  while (bytes > 0) {
    const ssize_t got = getrandom(at, bytes < 256 ? bytes : 256, 0);
    if (got < 0 && errno != EINTR) abort();
    if (got <= 0) continue;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
}
uint32_t arc4random() {
  uint32_t value = 0;
  arc4random_buf(&value, sizeof value);
  return value;
}

// 2.30. Where the system has it, it is called. Elsewhere the deadline is that of the other clock, and a waiter that it
// woke too early, since that clock was set, is told of no time-out: a spurious wakeup, which waiters expect.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  using Wait = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  // Not a static local: its guard is a function of libstdc++, which a program in C does not have.
  static Wait known = nullptr;
  static int asked = 0;
  if (__atomic_load_n(&asked, __ATOMIC_ACQUIRE) == 0) {
    __atomic_store_n(&known, reinterpret_cast<Wait>(dlsym(RTLD_DEFAULT, "pthread_cond_clockwait")), __ATOMIC_RELAXED);
    __atomic_store_n(&asked, 1, __ATOMIC_RELEASE);
  }
  if (const Wait system = __atomic_load_n(&known, __ATOMIC_RELAXED)) return system(condition, mutex, clock, until);
  if (clock == CLOCK_REALTIME) return pthread_cond_timedwait(condition, mutex, until);
  timespec now{}, real{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &real);
  constexpr long kSecond = 1'000'000'000;
  real.tv_sec += until->tv_sec - now.tv_sec;
  real.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (real.tv_nsec < 0) --real.tv_sec, real.tv_nsec += kSecond;
  if (real.tv_nsec >= kSecond) ++real.tv_sec, real.tv_nsec -= kSecond;
  const int result = pthread_cond_timedwait(condition, mutex, &real);
  if (result != ETIMEDOUT) return result;
  clock_gettime(clock, &now);
  const bool reached = now.tv_sec != until->tv_sec ? now.tv_sec > until->tv_sec : now.tv_nsec >= until->tv_nsec;
  return reached ? ETIMEDOUT : 0;
}

// 2.35, for exceptions: the file that holds an address, and its table of frames.
int _dl_find_object(void* address, dl_find_object* found) {
  struct Search {
    ElfW(Addr) address;
    dl_find_object* found;
  } search{reinterpret_cast<ElfW(Addr)>(address), found};
  const auto look = [](dl_phdr_info* file, size_t, void* data) {
    auto& wanted = *static_cast<Search*>(data);
    const ElfW(Phdr)* frames = nullptr;
    ElfW(Addr) first = ~ElfW(Addr){0}, last = 0;
    bool inside = false;
    for (int i = 0; i < file->dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = file->dlpi_phdr[i];
      const ElfW(Addr) begin = file->dlpi_addr + part.p_vaddr, end = begin + part.p_memsz;
      if (part.p_type == PT_GNU_EH_FRAME) frames = &part;
      if (part.p_type != PT_LOAD) continue;
      first = begin < first ? begin : first;
      last = end > last ? end : last;
      inside = inside || (wanted.address >= begin && wanted.address < end);
    }
    if (!inside || frames == nullptr) return 0;
    *wanted.found = {};
    wanted.found->dlfo_map_start = reinterpret_cast<void*>(first);
    wanted.found->dlfo_map_end = reinterpret_cast<void*>(last);
    wanted.found->dlfo_eh_frame = reinterpret_cast<void*>(file->dlpi_addr + frames->p_vaddr);
    return 1;
  };
  return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}

}  // extern "C"
#pragma GCC visibility pop
