#pragma once

// In the place of that of mingw-w64, whose files have numbers of 16 bits and no times below a second.

#include "windows_posix.h"

#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define S_IFLNK 0120000
#define S_IFREG 0100000
#define S_IFDIR 0040000
#define S_IFCHR 0020000
#define S_IFBLK 0060000
#define S_IFIFO 0010000
#define S_ISREG(mode) (((mode) & S_IFMT) == S_IFREG)
#define S_ISDIR(mode) (((mode) & S_IFMT) == S_IFDIR)
#define S_ISLNK(mode) (((mode) & S_IFMT) == S_IFLNK)
#define S_ISCHR(mode) (((mode) & S_IFMT) == S_IFCHR)
#define S_ISBLK(mode) (((mode) & S_IFMT) == S_IFBLK)
#define S_ISFIFO(mode) (((mode) & S_IFMT) == S_IFIFO)
#define S_ISSOCK(mode) (((mode) & S_IFMT) == S_IFSOCK)
#define S_IWGRP 0020
#define S_IROTH 0004
#define S_IWOTH 0002
#define S_IRWXO 0007

struct stat {
  uint64_t st_dev, st_ino;
  unsigned st_mode;
  uid_t st_uid;
  unsigned st_rdev;  ///< of a character device: 1 a console, 3 another, as NUL
  int64_t st_size, st_blocks;
  struct timespec st_atim, st_mtim;
};

extern "C" {
int stat(const char* path, struct stat* status) __asm__("dllm_stat");
int lstat(const char* path, struct stat* status) __asm__("dllm_lstat");
int fstat(int fd, struct stat* status) __asm__("dllm_fstat");
}
