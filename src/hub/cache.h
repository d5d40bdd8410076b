#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"

namespace dllm::hub {

/// One repository in huggingface_hub's cache:
///
///     models--org--name/blobs/ETAG               a file, under its digest
///                       refs/main                the commit that a branch was at
///                       snapshots/COMMIT/PATH    a link to ../../blobs/ETAG
///     .locks/models--org--name/ETAG.lock         held while a file is downloaded
class RepositoryCache {
 public:
  /// `root`: Config::cache. `repository`: is_repository().
  RepositoryCache(const std::string& root, std::string_view repository);

  std::string blob(std::string_view etag) const;
  /// Path of the partial download.
  std::string incomplete(std::string_view etag) const { return blob(etag) + ".incomplete"; }
  std::string lock(std::string_view etag) const;
  std::string snapshot(std::string_view commit) const;

  /// The commit of a branch, tag or commit, as of the last query to the hub.
  std::optional<std::string> commit_of(std::string_view revision) const;
  Expected<void> set_commit(std::string_view revision, std::string_view commit) const;

  /// Paths of a snapshot's complete files, sorted.
  std::vector<std::string> files(std::string_view commit) const;
  /// Makes `path` of the snapshot a link to the blob. Errors: kIo.
  Expected<void> link(std::string_view commit, std::string_view path, std::string_view etag) const;

  Expected<void> make_folders(std::string_view commit) const;

 private:
  std::string folder_, locks_;
};

}  // namespace dllm::hub
