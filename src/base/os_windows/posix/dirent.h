#pragma once

#include_next <dirent.h>

#include "windows_posix.h"

extern "C" DIR* fdopendir(int fd);
