#pragma once

#include_next <signal.h>

// SIGINT, SIGTERM and SIGHUP are Ctrl-C, Ctrl-Break and the end of console or session; SIGBUS is a page of a mapped
// file that cannot be read. sigaction() refuses all others.
#define SIGHUP 1
#define SIGQUIT 3
#define SIGTRAP 5
#define SIGBUS 7
#define SIGUSR1 10
#define SIGUSR2 12
#define SIGPIPE 13
#define SIGALRM 14
#define SIGXCPU 24
#define SIGXFSZ 25
#define SIGVTALRM 26
#define SIGPROF 27
#define SIGSYS 31
#define SIGTSTP 20
#define SA_SIGINFO 4
#define SA_ONSTACK 0
#define SA_RESTART 0x10000000
#define SA_RESETHAND 0x80000000
#define BUS_ADRERR 2
#define SIG_BLOCK 0
#define SIG_UNBLOCK 1
#define SIG_SETMASK 2

using sigset_t = unsigned long long;

struct siginfo_t {
  int si_code;
  void* si_addr;
};

struct sigaction {
  union {
    void (*sa_handler)(int);
    void (*sa_sigaction)(int, siginfo_t*, void*);
  };
  int sa_flags;
  sigset_t sa_mask;
};

extern "C" {
int sigaction(int signal, const struct sigaction* action, struct sigaction* before);
int sigemptyset(sigset_t* set);
int sigaddset(sigset_t* set, int signal);
}
