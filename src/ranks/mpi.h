#pragma once

#include <memory>

#include "dllm/error.h"
#include "ranks/communicator.h"

namespace dllm {

/// The ranks that `mpirun` or `srun` has started, by a module that is loaded now: a build has it where MPI was
/// installed, and the program needs no MPI for anything else. After a rank is lost, MPI ends all. Errors: kUnsupported
/// (no module, or of another version; no MPI; MPI has been started in this process before).
Expected<std::shared_ptr<Communicator>> mpi_ranks();

/// What the module exports under kMpiEntry: makes a communicator, or returns false and says why.
using MpiEntry = bool (*)(const char* version, std::unique_ptr<Communicator>& ranks, Error& error);
inline constexpr const char* kMpiEntry = "dllm_mpi_ranks";

}  // namespace dllm
