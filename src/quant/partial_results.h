#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/file_lock.h"
#include "base/log.h"
#include "dllm/error.h"
#include "format/sealed_file.h"

namespace dllm {

/// The folder of a long computation's finished parts, `target`.IDENTITY.partial, where the same command continues after
/// whatever ended it. Only one process works in it, and a file that is not whole is not believed.
class PartialResults {
 public:
  /// Makes the folder, or finds it. Folders of other runs for this target that nobody works in are told to `log`: their
  /// commands could continue there, so they are not removed. Errors: kIo; kUsage (another process works in it).
  static Expected<PartialResults> open(const std::string& target, std::uint64_t identity, const Log& log);

  const std::string& folder() const { return folder_; }
  Expected<SealedWriter> create(std::string_view name) const;
  /// nullopt: there is none, or it is damaged, which `log` is told; it is then removed.
  std::optional<SealedFile> find(std::string_view name) const;
  void remove(std::string_view name) const;
  /// Removes the folder.
  void remove_all();

 private:
  PartialResults(std::string folder, std::uint64_t identity, FileLock lock, const Log& log)
      : folder_(std::move(folder)), identity_(identity), lock_(std::move(lock)), log_(log) {}
  std::string path_of(std::string_view name) const;
  std::uint64_t key_of(std::string_view name) const;

  std::string folder_;
  std::uint64_t identity_;
  FileLock lock_;
  Log log_;
};

}  // namespace dllm
