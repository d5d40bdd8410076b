#pragma once

#include <fcntl.h>

#include "windows_posix.h"
