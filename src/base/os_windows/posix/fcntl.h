#pragma once

#include_next <fcntl.h>

#include "windows_posix.h"
