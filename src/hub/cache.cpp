#include "hub/cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/output_file.h"
#include "base/try.h"

namespace dllm::hub {
namespace {

namespace fs = std::filesystem;

Error io_error(const std::string& path, const std::error_code& failure) {
  return {ErrorCode::kIo, failure.message(), path, "see HF_HUB_CACHE for another folder"};
}

Expected<void> make_folder(const fs::path& path) {
  std::error_code failure;
  fs::create_directories(path, failure);
  if (failure) return io_error(path.string(), failure);
  return {};
}

}  // namespace

RepositoryCache::RepositoryCache(const std::string& root, std::string_view repository) {
  std::string name = "models--" + std::string(repository);
  if (const auto slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
  folder_ = (fs::path(root) / name).string();
  locks_ = (fs::path(root) / ".locks" / name).string();
}

std::string RepositoryCache::blob(std::string_view etag) const { return fmt::format("{}/blobs/{}", folder_, etag); }
std::string RepositoryCache::lock(std::string_view etag) const { return fmt::format("{}/{}.lock", locks_, etag); }
std::string RepositoryCache::snapshot(std::string_view commit) const {
  return fmt::format("{}/snapshots/{}", folder_, commit);
}

std::optional<std::string> RepositoryCache::commit_of(std::string_view revision) const {
  std::error_code ignored;
  if (fs::is_directory(snapshot(revision), ignored)) return std::string(revision);
  std::ifstream file(fmt::format("{}/refs/{}", folder_, revision));
  std::string commit;
  if (!(file >> commit)) return std::nullopt;
  return commit;
}

Expected<void> RepositoryCache::set_commit(std::string_view revision, std::string_view commit) const {
  const fs::path path = fs::path(folder_) / "refs" / revision;
  DLLM_CHECK_OK(make_folder(path.parent_path()));
  return write_file(path.string(), commit);
}

std::vector<std::string> RepositoryCache::files(std::string_view commit) const {
  std::vector<std::string> result;
  const fs::path root = snapshot(commit);
  std::error_code failure;
  for (fs::recursive_directory_iterator entry(root, failure), end; !failure && entry != end; entry.increment(failure)) {
    std::error_code dangling;
    // Follows the link: its target must exist.
    if (fs::is_regular_file(entry->path(), dangling))
      result.push_back(entry->path().lexically_relative(root).generic_string());
  }
  std::ranges::sort(result);
  return result;
}

Expected<void> RepositoryCache::link(std::string_view commit, std::string_view path, std::string_view etag) const {
  const fs::path at = fs::path(snapshot(commit)) / path;
  DLLM_CHECK_OK(make_folder(at.parent_path()));
  const fs::path target = fs::path(blob(etag)).lexically_relative(at.parent_path());
  std::error_code failure;
  if (fs::read_symlink(at, failure) == target) return {};
  const fs::path fresh = at.string() + fmt::format(".{}.link", getpid());
  fs::remove(fresh, failure);
  fs::create_symlink(target, fresh, failure);
  // Some file systems have no symbolic links, users of Windows may not make them, and wine says that it made one.
  if (std::error_code missing; failure || !fs::is_symlink(fresh, missing))
    fs::create_hard_link(blob(etag), fresh, failure);
  if (failure) return io_error(fresh.string(), failure);
  fs::rename(fresh, at, failure);
  if (failure) return io_error(at.string(), failure);
  return {};
}

Expected<void> RepositoryCache::make_folders(std::string_view commit) const {
  for (const fs::path& path : {fs::path(folder_) / "blobs", fs::path(snapshot(commit)), fs::path(locks_)})
    DLLM_CHECK_OK(make_folder(path));
  return {};
}

}  // namespace dllm::hub
