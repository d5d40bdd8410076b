#pragma once

#include_next <unistd.h>

#include "windows_posix.h"
