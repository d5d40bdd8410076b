#pragma once

#define TIOCGWINSZ 1

struct winsize {
  unsigned short ws_row, ws_col;
};

extern "C" int ioctl(int fd, int request, winsize* size);
