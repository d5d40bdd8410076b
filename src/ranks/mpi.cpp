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
/// looks. `why`: what is wrong with the module that is there, else that there is none.
void* load_module(std::string& why) {
  bool there = false;
  std::error_code failure;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failure).parent_path();
  for (const std::filesystem::path& place :
       {program / kModule, program / "../lib/dllm" / kModule, std::filesystem::path(kModule)}) {
    if (void* const module = ::dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL)) return module;
    const char* const text = ::dlerror();
    if (!there) why = text != nullptr ? text : "";
    there = there || std::filesystem::exists(place, failure);
  }
  return nullptr;
}

}  // namespace

Expected<std::shared_ptr<Communicator>> mpi_ranks() {
  std::string why;
  void* const module = load_module(why);
  if (module == nullptr)
    return Error{ErrorCode::kUnsupported, "there is no module for MPI: " + why, kModule,
                 "install libopenmpi-dev and build again; to run it, install openmpi-bin"};
  const auto entry = reinterpret_cast<MpiEntry>(::dlsym(module, kMpiEntry));
  if (entry == nullptr)
    return Error{ErrorCode::kUnsupported, "the module for MPI is of another version", kModule, "build both again"};
  std::unique_ptr<Communicator> ranks;
  Error error;
  if (!entry(DLLM_VERSION, ranks, error)) return error;
  return std::shared_ptr<Communicator>(std::move(ranks));
}

}  // namespace dllm
