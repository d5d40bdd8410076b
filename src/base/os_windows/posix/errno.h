#pragma once

#include_next <errno.h>

#ifndef EDQUOT
#define EDQUOT 10069
#endif
