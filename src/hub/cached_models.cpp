#include "hub/cached_models.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "hub/cache.h"
#include "hub/config.h"
#include "hub/select.h"

namespace dllm::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolder = "models--", kGguf = ".gguf";

std::uint64_t bytes_of(const fs::path& path) {
  std::error_code absent;
  const std::uint64_t size = fs::file_size(path, absent);
  return absent ? 0 : size;
}

/// "models--org--name" -> "org/name"; empty: it is no repository's.
std::string repository_of(std::string folder) {
  if (!folder.starts_with(kFolder)) return "";
  folder.erase(0, kFolder.size());
  if (const auto dashes = folder.find("--"); dashes != folder.npos) folder.replace(dashes, 2, "/");
  return is_repository(folder) ? folder : "";
}

/// The commit of `main`, else of the first other branch or tag.
std::optional<std::string> some_commit(const RepositoryCache& cache, const fs::path& folder) {
  if (auto commit = cache.commit_of("main")) return commit;
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::recursive_directory_iterator ref(folder / "refs", failure), end; !failure && ref != end;
       ref.increment(failure))
    if (ref->is_regular_file(failure))
      names.push_back(ref->path().lexically_relative(folder / "refs").generic_string());
  std::ranges::sort(names);
  for (const std::string& name : names)
    if (auto commit = cache.commit_of(name)) return commit;
  return std::nullopt;
}

/// The shortest type that chooses this file and no other, as in ORG/MODEL:TYPE; nullopt: none does.
std::optional<Selection> selected(const std::vector<std::string>& paths, const std::string& path, std::string& type) {
  std::string stem = path.substr(0, path.size() - kGguf.size());
  if (const auto part = stem.rfind("-00001-of-"); part != stem.npos && part + 15 == stem.size()) stem.resize(part);
  for (std::size_t at = stem.size(); at > 0;) {
    at = stem.find_last_of("-./", at - 1);
    type = at == stem.npos ? stem : stem.substr(at + 1);
    if (parse_model_name("x:" + type)) {
      auto selection = select_files(paths, type, "", "");
      if (selection && selection->files.front() == path) return *std::move(selection);
    }
    if (at == stem.npos) break;
  }
  return std::nullopt;
}

CachedModel model_of(const std::string& repository, const std::string& type, const std::string& snapshot,
                     const Selection& selection) {
  CachedModel model{.name = type.empty() ? repository : repository + ":" + type,
                    .repository = repository,
                    .path = selection.directory ? snapshot : snapshot + "/" + selection.files.front(),
                    .files = selection.files};
  for (const std::string& file : model.files) model.bytes += bytes_of(fs::path(snapshot) / file);
  return model;
}

/// What is there of a repository without a complete model.
CachedModel incomplete(const std::string& repository, const fs::path& folder) {
  CachedModel model{.name = repository, .repository = repository};
  std::error_code failure;
  for (fs::directory_iterator blob(folder / "blobs", failure), end; !failure && blob != end; blob.increment(failure))
    model.bytes += bytes_of(blob->path());
  return model;
}

std::vector<CachedModel> models_of(const std::string& root, const std::string& repository, const fs::path& folder) {
  const RepositoryCache cache(root, repository);
  const auto commit = some_commit(cache, folder);
  if (!commit) return {incomplete(repository, folder)};
  const std::string snapshot = cache.snapshot(*commit);
  const std::vector<std::string> paths = cache.files(*commit);
  if (const auto only = select_files(paths, "", "", "")) return {model_of(repository, "", snapshot, *only)};
  std::vector<CachedModel> models;
  for (const std::string& path : paths) {
    std::string type;
    if (!path.ends_with(kGguf)) continue;
    if (const auto selection = selected(paths, path, type))
      models.push_back(model_of(repository, type, snapshot, *selection));
  }
  if (models.empty()) return {incomplete(repository, folder)};
  return models;
}

}  // namespace

std::vector<CachedModel> cached_models(const std::string& root) {
  std::vector<CachedModel> all;
  std::error_code failure;
  for (fs::directory_iterator entry(root, failure), end; !failure && entry != end; entry.increment(failure)) {
    const std::string repository = repository_of(entry->path().filename().string());
    std::error_code ignored;
    if (repository.empty() || !entry->is_directory(ignored)) continue;
    for (CachedModel& one : models_of(root, repository, entry->path())) all.push_back(std::move(one));
  }
  std::ranges::sort(all, {}, &CachedModel::name);
  return all;
}

}  // namespace dllm::hub
