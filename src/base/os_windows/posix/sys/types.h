#pragma once

#include_next <sys/types.h>

// Numbers of volumes and files; those of mingw-w64 have 32 and 16 bits.
#define dev_t unsigned long long
#define ino_t unsigned long long
