#include "ranks/mpi.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "dllm/version.h"

namespace dllm {
namespace {

constexpr const char* kModule = "libdllm_mpi.so";

/// Beside the program, where a build leaves it; in the folder of libraries, where it is installed; where the system
/// looks.
void* load_module() {
  std::error_code failure;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failure).parent_path();
  for (const std::filesystem::path& place :
       {program / kModule, program / "../lib/dllm" / kModule, std::filesystem::path(kModule)})
    if (void* const module = ::dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL)) return module;
  return nullptr;
}

}  // namespace

Expected<std::shared_ptr<Communicator>> mpi_ranks() {
  void* const module = load_module();
  if (module == nullptr) {
    const char* const why = ::dlerror();
    return Error{ErrorCode::kUnsupported, std::string("there is no module for MPI: ") + (why != nullptr ? why : ""),
                 kModule, "install libopenmpi-dev and build again; to run it, install openmpi-bin"};
  }
  const auto entry = reinterpret_cast<MpiEntry>(::dlsym(module, kMpiEntry));
  if (entry == nullptr)
    return Error{ErrorCode::kUnsupported, "the module for MPI is of another version", kModule, "build both again"};
  std::unique_ptr<Communicator> ranks;
  Error error;
  if (!entry(DLLM_VERSION, ranks, error)) return error;
  return std::shared_ptr<Communicator>(std::move(ranks));
}

}  // namespace dllm
