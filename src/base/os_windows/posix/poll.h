#pragma once

#define POLLIN 0x0300  // as winsock2.h has it

#ifndef _WINSOCK2API_
/// Of file descriptors of pipes.
struct pollfd {
  int fd;
  short events, revents;
};

extern "C" int poll(pollfd* sources, unsigned count, int milliseconds);
#endif
