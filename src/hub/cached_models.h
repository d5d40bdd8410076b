#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"

namespace dllm::hub {

/// A model in the cache.
struct CachedModel {
  std::string name{};                ///< what pull() calls it: "org/model", or "org/model:Q4_K_M" of several files
  std::string repository{};          ///< "org/model"
  std::string path{};                ///< the GGUF file, or the folder of a checkpoint; empty: no complete model
  std::vector<std::string> files{};  ///< of the snapshot, relative to it
  std::uint64_t bytes = 0;           ///< of these files; without a complete model, of what is there
};

/// The models that pull() has brought, and others with its layout, by name: of each repository those at its branch
/// `main`, else at any other that was pulled. `root`: Config::cache.
std::vector<CachedModel> cached_models(const std::string& root);

struct Removed {
  std::uint64_t bytes = 0;  ///< that are free now
};

/// Removes a model from the cache, by its name in cached_models(): its files, in all revisions, and the whole
/// repository if no other model of it is there. Errors: kUsage (no such model; it is in use: a process has mapped a
/// file of it, or downloads it), kIo.
Expected<Removed> remove_model(const std::string& root, std::string_view name);

/// Processes of this machine that have mapped one of these files, links resolved; those of other users cannot be seen.
std::vector<int> users_of(const std::vector<std::string>& paths);

}  // namespace dllm::hub
