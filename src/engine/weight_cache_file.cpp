#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "base/hash.h"
#include "engine/backend/cpu.h"
#include "engine/load.h"
#include "format/gguf.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;

/// Adds one file to the key. A file that cannot be examined adds nothing: opening the model reports it.
void add_file(const fs::path& path, SourceIdentity& identity) {
  struct stat status{};
  if (::stat(path.string().c_str(), &status) != 0) return;
  identity.size += static_cast<std::uint64_t>(status.st_size);
  const auto stamp = static_cast<std::uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000u +
                     static_cast<std::uint64_t>(status.st_mtim.tv_nsec);
  identity.stamp = mix64(mix64(identity.stamp, static_cast<std::uint64_t>(status.st_size)), stamp);
}

}  // namespace

SourceIdentity source_identity(const std::string& model) {
  SourceIdentity identity;
  std::error_code failure;
  if (fs::is_directory(model, failure)) {
    std::vector<fs::path> files;
    for (fs::directory_iterator it(model, failure), end; !failure && it != end; it.increment(failure))
      files.push_back(it->path());
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files)
      if (file.extension() == ".safetensors" || file.extension() == ".json") add_file(file, identity);
  } else if (!model.empty()) {
    for (const std::string& file : gguf_parts(model)) add_file(file, identity);
  }
  return identity;
}

Expected<WeightCacheOptions> weight_cache_options(const std::string& model, const LoadOptions& load, const Log& log) {
  WeightCacheOptions options;
  options.log = log;
  if (load.weight_cache.empty()) return options;
  if (load.weight_cache != "auto") {
    options.path = load.weight_cache;
  } else if (model.empty()) {
    return Error{ErrorCode::kUsage, "the embedded model has no file name, so auto cannot name its weight cache",
                 "--weight-cache", "name a file"};
  } else {
    // "models/llada/" is the directory "models/llada".
    const fs::path path = fs::path(model).lexically_normal();
    options.path = (path.has_filename() ? path : path.parent_path()).string() + ".dllm-packed";
  }
  const SourceIdentity identity = source_identity(model);
  options.source_size = identity.size;
  options.source_stamp = identity.stamp;
  return options;
}

}  // namespace dllm
