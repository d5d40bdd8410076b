#pragma once

#include_next <pthread.h>

#include "windows_posix.h"
