#pragma once

#include <cstdint>
#include <string>

#include "dllm/error.h"

namespace dllm {

struct SandboxOptions {
  double seconds = 10;           ///< wall clock; CPU time of a process is limited to the next second above
  std::int64_t memory_mb = 512;  ///< address space of a process
  std::int64_t disk_mb = 64;     ///< of the file system in memory, the only one that can be written; 16 per file
  int processes = 16;            ///< and threads, of program and test together
  bool unsafe = false;           ///< without namespaces: see run_python()
};

struct SandboxResult {
  bool passed = false;
  std::string reason;  ///< otherwise: "timeout", "killed by signal 9", the last line of an exception
};

/// Runs a Python program, and then a test that may call what the program defines, with python3 of PATH.
///
/// The two are processes of their own, so the verdict is out of the program's reach: the test holds the channel on
/// which it is told, and calls of the program's functions go over a socket on which plain values travel (None, numbers,
/// strings, bytes and containers of them; no code and no objects). Arguments that the function changes are changed in
/// the test too. A program with an empty test passes when it has run to its end.
///
/// Both see a file system of their own: the system's libraries and the interpreter, read-only, and a directory in
/// memory; no /proc, no home, no other file. They are an unprivileged user in namespaces of their own (user, PID,
/// mount, network without interfaces, IPC, host name), may not call what makes, joins or watches others (seccomp), and
/// have no environment, no input and no core files. Everything ends with the verdict, or with the calling process,
/// however it ends: the first process of a PID namespace takes the others with it.
///
/// `unsafe` leaves the namespaces out: the program then sees files and network with the rights of the caller. Limits
/// and the ending of everything remain, the latter as well as it can be done from outside.
///
/// Errors: kUnsupported (no python3, or the system grants too little: says what), kIo, kResource.
Expected<SandboxResult> run_python(const std::string& program, const std::string& test,
                                   const SandboxOptions& options = {});

}  // namespace dllm
