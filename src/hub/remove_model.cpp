#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "base/file_lock.h"
#include "base/parse_text.h"
#include "base/try.h"
#include "hub/cache.h"
#include "hub/cached_models.h"

namespace dllm::hub {
namespace {

namespace fs = std::filesystem;

using Paths = std::set<fs::path>;

/// Every file of the repository under `folder`, without following links.
Paths files_under(const fs::path& folder) {
  Paths found;
  std::error_code failure;
  for (fs::recursive_directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    if (std::error_code ignored; !entry->is_directory(ignored) || entry->is_symlink(ignored))
      found.insert(entry->path());
  return found;
}

/// The blob that a snapshot's file leads to; of a file that is none, itself.
fs::path blob_of(const fs::path& file) {
  std::error_code failure;
  const fs::path real = fs::weakly_canonical(file, failure);
  return failure ? file : real;
}

/// The same where RepositoryCache::link() could make hard links only.
fs::path blob_in(const fs::path& folder, const fs::path& file) {
  std::error_code failure;
  if (fs::hard_link_count(file, failure) > 1 && !failure && !fs::is_symlink(file, failure))
    for (fs::directory_iterator one(folder / "blobs", failure), end; !failure && one != end; one.increment(failure))
      if (std::error_code unknown; fs::equivalent(one->path(), file, unknown)) return blob_of(one->path());
  return blob_of(file);
}

struct Doomed {
  Paths links;  ///< of the snapshots
  Paths blobs;  ///< that nothing else refers to
};

/// What goes with the files `files` of all snapshots.
Doomed doomed_files(const fs::path& folder, const std::vector<std::string>& files) {
  Doomed doomed;
  Paths kept;
  for (const fs::path& file : files_under(folder / "snapshots")) {
    const fs::path inner = file.lexically_relative(folder / "snapshots");
    const std::string path = inner.lexically_relative(*inner.begin()).generic_string();
    const bool goes = std::ranges::find(files, path) != files.end();
    (goes ? doomed.links : kept).insert(file);
  }
  Paths needed;
  for (const fs::path& file : kept) needed.insert(blob_in(folder, file));
  // What a link outside of the cache leads to is not the cache's.
  const std::string inside = blob_of(folder).generic_string() + "/";
  for (const fs::path& file : doomed.links)
    if (const fs::path blob = blob_in(folder, file);
        !needed.contains(blob) && blob.generic_string().starts_with(inside))
      doomed.blobs.insert(blob);
  return doomed;
}

Error in_use(std::string_view name, const std::string& by) {
  return {ErrorCode::kUsage, "it is in use: " + by, std::string(name), "end that first"};
}

/// The locks of downloads of these blobs. Errors: kUsage (one is in progress).
Expected<std::vector<FileLock>> lock_downloads(const RepositoryCache& cache, std::string_view name,
                                               const Paths& blobs) {
  std::vector<FileLock> locks;
  for (const fs::path& blob : blobs) {
    std::string etag = blob.filename().string();
    if (constexpr std::string_view kPart = ".incomplete"; etag.ends_with(kPart))
      etag.resize(etag.size() - kPart.size());
    std::error_code ignored;
    if (!fs::exists(cache.lock(etag), ignored)) continue;
    DLLM_TRY(auto lock, FileLock::try_take(cache.lock(etag)));
    if (!lock) return in_use(name, "it is being downloaded");
    locks.push_back(*std::move(lock));
  }
  return locks;
}

std::uint64_t size_of_file(const fs::path& path) {
  std::error_code failure;
  if (fs::is_symlink(path, failure)) return 0;
  const std::uint64_t size = fs::file_size(path, failure);
  return failure ? 0 : size;
}

Expected<void> remove_path(const fs::path& path) {
  std::error_code failure;
  fs::remove_all(path, failure);
  if (failure) return Error{ErrorCode::kIo, failure.message(), path.string(), ""};
  return {};
}

/// Folders that became empty, the inner ones first.
void remove_empty(const fs::path& folder) {
  std::vector<fs::path> folders;
  std::error_code failure;
  for (fs::recursive_directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    if (std::error_code ignored; entry->is_directory(ignored) && !entry->is_symlink(ignored))
      folders.push_back(entry->path());
  std::ranges::sort(folders, std::ranges::greater());
  for (const fs::path& one : folders)
    if (std::error_code ignored; fs::is_empty(one, ignored)) fs::remove(one, ignored);
}

}  // namespace

std::vector<int> users_of(const std::vector<std::string>& paths) {
  Paths wanted;
  for (const std::string& path : paths) wanted.insert(blob_of(path));
  std::vector<int> users;
  std::error_code failure;
  for (fs::directory_iterator process("/proc", failure), end; !failure && process != end; process.increment(failure)) {
    const auto id = parse_number<int>(process->path().filename().string());
    if (!id) continue;
    std::ifstream maps(process->path() / "maps");
    for (std::string line; std::getline(maps, line);) {
      // "address perms offset dev inode   path"; only the path contains a slash.
      const auto at = line.find('/');
      if (at == line.npos || !wanted.contains(line.substr(at))) continue;
      users.push_back(*id);
      break;
    }
  }
  std::ranges::sort(users);
  return users;
}

Expected<Removed> remove_model(const std::string& root, std::string_view name) {
  const std::vector<CachedModel> models = cached_models(root);
  const auto found = std::ranges::find(models, name, &CachedModel::name);
  if (found == models.end()) {
    std::vector<std::string> names;
    for (const CachedModel& one : models) names.push_back(one.name);
    return Error{ErrorCode::kUsage, "no model of the cache has exactly this name", std::string(name),
                 names.empty() ? "the cache is empty" : fmt::format("there are: {}", fmt::join(names, ", "))};
  }
  const RepositoryCache cache(root, found->repository);
  const fs::path folder = fs::path(cache.snapshot("x")).parent_path().parent_path();
  const bool whole = std::ranges::count(models, found->repository, &CachedModel::repository) == 1;
  Doomed doomed = doomed_files(folder, found->files);
  if (whole) doomed.blobs = files_under(folder / "blobs");
  DLLM_TRY(const auto locks, lock_downloads(cache, name, doomed.blobs));
  std::vector<std::string> mapped;
  for (const fs::path& blob : doomed.blobs) mapped.push_back(blob.string());
  for (const fs::path& link : doomed.links) mapped.push_back(link.string());
  if (const auto users = users_of(mapped); !users.empty())
    return in_use(name, fmt::format("process{} {} {} loaded it", users.size() == 1 ? "" : "es", fmt::join(users, ", "),
                                    users.size() == 1 ? "has" : "have"));
  Removed removed;
  for (const fs::path& file : whole ? files_under(folder) : doomed.blobs)
    if (blob_in(folder, file) == blob_of(file)) removed.bytes += size_of_file(file);
  if (whole) {
    DLLM_CHECK_OK(remove_path(folder));
    DLLM_CHECK_OK(remove_path(fs::path(cache.lock("x")).parent_path()));
    return removed;
  }
  for (const fs::path& link : doomed.links) DLLM_CHECK_OK(remove_path(link));
  for (const fs::path& blob : doomed.blobs) DLLM_CHECK_OK(remove_path(blob));
  remove_empty(folder / "snapshots");
  return removed;
}

}  // namespace dllm::hub
