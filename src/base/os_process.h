#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// What differs between systems about processes, threads and machines.

namespace dllm {

/// Fills the bytes from the system's source of random numbers. False: `errno` tells why.
bool random_bytes(void* to, std::size_t count);

/// From now on the calling thread yields to others, as one of this nice value (1 to 19) does on Linux.
void lower_priority(int nice);

/// The processors that this process may run on; 0: the system does not tell.
int allowed_processors();

struct HostSystem {
  std::string name, release, machine;  ///< "Linux", "6.1.0-18-amd64", "x86_64"
  std::string text() const { return name + " " + release + " " + machine; }
};
HostSystem host_system();

/// The processor's own name; empty: the system has a file that tells, or does not tell.
std::string processor_name();

/// The machine's main memory, in bytes; 0: unknown.
std::int64_t memory_size();

/// Bytes of the standard streams are as the program writes them, and a console shows them as UTF-8 and obeys escape
/// sequences. For main(), before anything is written.
void prepare_standard_streams();

/// For main().
void remember_main_thread();
/// From another thread than that: passes a signal on to it. Async-signal-safe. False: this is that thread, or the
/// system sends no signals to threads.
bool pass_to_main_thread(int signal);

/// A pipe that programs started later do not inherit. `blocking`: whether reads of ends[0] wait. False: `errno`.
bool open_pipe(int ends[2], bool blocking);

}  // namespace dllm
