#pragma once

#include <cstdint>
#include <string>

#include "dllm/error.h"

namespace dllm {

struct SandboxOptions {
  double seconds = 10;           ///< wall clock; the CPU time of a process is limited to the next whole second
  std::int64_t memory_mb = 512;  ///< address space of a process
  /// Of all processes together. Looked at fifty times a second, so for a moment it may be a few hundred MB more.
  std::int64_t total_memory_mb = 1024;
  std::int64_t disk_mb = 64;  ///< of the in-memory file system, the only writable one; 16 per file
  int processes = 16;         ///< and threads, of program and test together
  bool unsafe = false;        ///< without namespaces: see run_python()
};

struct SandboxResult {
  bool passed = false;
  std::string reason;  ///< otherwise: "timeout", "killed by signal 9", the last line of an exception
};

/// Runs a Python program, and then a test that may call the program's functions, with python3 of PATH.
///
/// The two are separate processes, so the program cannot influence the verdict: only the test holds the channel for it,
/// and calls of the program's functions go over a socket that carries plain values (None, numbers, strings, bytes and
/// containers of them; no code and no objects). If the function changes its arguments, they also change in the test. A
/// program with an empty test passes when it runs to its end.
///
/// Both see a private file system: the system's libraries and the interpreter, read-only, and a directory in memory; no
/// /proc, no home, no other file. They run as an unprivileged user in their own namespaces (user, PID, mount, network
/// without interfaces, IPC, host name), cannot use system calls that create, join or trace others (seccomp), and have
/// no environment, no input and no core files. Everything ends with the verdict, or with the calling process, however
/// it ends: the first process of a PID namespace takes the others with it.
///
/// `unsafe` uses no namespaces: the program then has the caller's access to files and network. Limits still apply, and
/// all processes are ended as far as possible from outside.
///
/// Errors: kUnsupported (no python3, or the system does not permit enough: says what), kIo, kResource.
Expected<SandboxResult> run_python(const std::string& program, const std::string& test,
                                   const SandboxOptions& options = {});

}  // namespace dllm
