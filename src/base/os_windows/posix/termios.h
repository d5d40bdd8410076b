#pragma once

#define TCSANOW 0

/// The mode of the console's input.
struct termios {
  unsigned long mode;
};

extern "C" {
int tcgetattr(int fd, termios* mode);
int tcsetattr(int fd, int when, const termios* mode);
}
