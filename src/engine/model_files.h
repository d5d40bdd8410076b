#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "dllm/model.h"
#include "format/mapped_file.h"

namespace dllm {

/// The files that a loaded model reads while it runs, for programs that run for long: whether they still hold what was
/// loaded. Of a file that was replaced by renaming, the map keeps the old one, so nothing changes. The weight cache is
/// one of them.
class ModelFiles {
 public:
  explicit ModelFiles(const LanguageModel& model);

  /// The worst of all files; two system calls a file.
  MappedFile::State state() const;
  /// Takes the digests of the files as they were loaded. False: one has changed already, or `stop`.
  bool record(const std::stop_token& stop);
  /// Whether all files have the recorded digests; modification times are accepted then. False also after `stop`.
  bool verify(const std::stop_token& stop) const;
  /// Paths that lead to other files than those that are mapped.
  std::vector<std::string> replaced() const;

 private:
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::vector<std::uint64_t> digests_;
};

}  // namespace dllm
