#pragma once

#include <windows.h>

#include <string>

// What the files of this folder share.

namespace dllm::windows {

/// Sets errno by GetLastError(), and returns -1.
int fail();
int fail(DWORD error);

std::wstring wide(const char* utf8);
std::string narrow(const wchar_t* text);

HANDLE handle_of(int fd);

/// The path of `name` in a directory, as functions of Windows take it. Empty: errno.
std::wstring path_at(int directory, const char* name);

/// Of an open file or directory.
std::wstring path_of(int fd);

}  // namespace dllm::windows
