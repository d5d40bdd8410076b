#pragma once

#include_next <pthread.h>

#undef pthread_atfork  // a macro that is 0

#include "windows_posix.h"
