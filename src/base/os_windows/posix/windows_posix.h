#pragma once

// Functions of POSIX that the sources call and mingw-w64 does not have. The headers of this folder stand before those
// of mingw-w64 and include this one, so that the sources are the same on every system. posix_*.cpp define them by calls
// of Windows, with three differences that callers see: access is decided by lists of users, so modes are 0600 or 0700
// and setting one changes nothing; a directory cannot be synchronised; signals are those of the console and of mapped
// files. Paths are UTF-8: the program's manifest (packaging/windows.manifest) makes it the code page of all functions.

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

using uid_t = unsigned;

#define O_CLOEXEC _O_NOINHERIT
#define O_NOFOLLOW 0x0100000
#define O_DIRECTORY 0x0200000
#define O_NONBLOCK 0x0400000
#define O_NOCTTY 0
#define AT_FDCWD (-100)
#define AT_SYMLINK_NOFOLLOW 0x100
#define AT_EACCESS 0x200
#define F_GETFD 1
#define F_GETFL 3
#define F_SETFL 4
#define LOCK_EX 2
#define LOCK_NB 4
#define PROT_READ 1
#define MAP_PRIVATE 2
#define MAP_FIXED 16
#define MAP_ANONYMOUS 32
#define MAP_NORESERVE 0
#define MAP_FAILED (reinterpret_cast<void*>(-1))
#define MADV_DONTNEED 4
#define UTIME_NOW 0x3fffffff
#define UTIME_OMIT 0x3ffffffe
#define _SC_PAGESIZE 30

struct stat;

struct statvfs {
  uint64_t f_blocks, f_bavail, f_files, f_favail;
  unsigned long f_frsize;
};

extern "C" {

int open(const char* path, int flags, ...);
int openat(int directory, const char* path, int flags, ...);
int fstatat(int directory, const char* path, struct stat* status, int flags);
int unlinkat(int directory, const char* path, int flags);
int renameat(int from_directory, const char* from, int to_directory, const char* to);
int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags);
int faccessat(int directory, const char* path, int mode, int flags);
int utimensat(int directory, const char* path, const struct timespec times[2], int flags);
int fstatvfs(int fd, struct statvfs* space);
int fchmod(int fd, mode_t mode);
int fcntl(int fd, int command, ...);
int flock(int fd, int operation);
int fsync(int fd);
ssize_t pread(int fd, void* to, size_t count, off_t at);
ssize_t pwrite(int fd, const void* from, size_t count, off_t at);
uid_t geteuid(void);
long sysconf(int name);
pid_t tcgetpgrp(int fd);
pid_t getpgrp(void);
void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t at);
int munmap(void* address, size_t bytes);
int madvise(void* address, size_t bytes, int advice);
#undef pthread_atfork
int pthread_atfork(void (*prepare)(), void (*parent)(), void (*child)());  ///< there is no fork()

}  // extern "C"
