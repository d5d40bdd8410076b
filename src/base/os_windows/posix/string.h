#pragma once

#include_next <string.h>

extern "C" void* memmem(const void* text, size_t size, const void* part, size_t part_size);
