#include "quant/partial_results.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/hash.h"
#include "base/human_bytes.h"
#include "base/try.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolderEnd = ".partial", kLockName = "lock";
constexpr std::size_t kIdentityDigits = 16;

std::string lock_of(const fs::path& folder) { return (folder / kLockName).string(); }

double bytes_in(const fs::path& folder) {
  double sum = 0;
  std::error_code ignored;
  for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end; at.increment(ignored)) {
    std::error_code unknown;
    if (const auto size = at->file_size(unknown); !unknown) sum += static_cast<double>(size);
  }
  return sum;
}

/// Whether it is the folder of a run for the target that has ended without removing it.
bool is_left(const fs::path& folder, const std::string& target_name) {
  const std::string name = folder.filename().string();
  if (name.size() != target_name.size() + 1 + kIdentityDigits + kFolderEnd.size() || !name.ends_with(kFolderEnd) ||
      !name.starts_with(target_name + ".") ||
      name.substr(target_name.size() + 1, kIdentityDigits).find_first_not_of("0123456789abcdef") != std::string::npos)
    return false;
  std::error_code ignored;
  if (!fs::is_directory(fs::symlink_status(folder, ignored))) return false;
  if (!fs::exists(lock_of(folder), ignored)) return true;
  const auto lock = FileLock::try_take(lock_of(folder));
  return lock && lock->has_value();
}

void tell_of_others(const fs::path& own, const std::string& target, const Log& log) {
  const fs::path parent = own.has_parent_path() ? own.parent_path() : fs::path(".");
  const std::string name = fs::path(target).filename().string();
  std::error_code ignored;
  for (fs::directory_iterator at(parent, ignored), end; !ignored && at != end; at.increment(ignored))
    if (at->path().filename() != own.filename() && is_left(at->path(), name))
      log.warning(
          "{} holds {} of a run with other options or another source, which did not end: its command continues "
          "there; if it is not needed, remove the folder",
          at->path().lexically_normal().string(), human_bytes(bytes_in(at->path())));
}

}  // namespace

Expected<PartialResults> PartialResults::open(const std::string& target, std::uint64_t identity, const Log& log) {
  const std::string folder = fmt::format("{}.{:016x}{}", target, identity, kFolderEnd);
  constexpr int kTries = 100;
  for (int attempt = 0;; ++attempt) {
    std::error_code failure;
    fs::create_directory(folder, failure);
    if (failure) return Error{ErrorCode::kIo, failure.message(), folder, ""};
    auto lock = FileLock::try_take(lock_of(folder));
    // The process that worked in it may have removed it between the two calls.
    if (!lock && attempt < kTries && !fs::exists(folder, failure)) continue;
    if (!lock) return std::move(lock).error();
    if (!*lock)
      return Error{ErrorCode::kUsage, "another process makes this file and works in this folder", folder,
                   "wait for it, or write to another file"};
    tell_of_others(folder, target, log);
    return PartialResults(folder, identity, **std::move(lock), log);
  }
}

std::string PartialResults::path_of(std::string_view name) const { return fmt::format("{}/{}", folder_, name); }

/// A file under another's name is not that file.
std::uint64_t PartialResults::key_of(std::string_view name) const {
  return mix64(identity_, Fnv1a().add(name).value());
}

Expected<SealedWriter> PartialResults::create(std::string_view name) const {
  return SealedWriter::create(path_of(name), key_of(name));
}

std::optional<SealedFile> PartialResults::find(std::string_view name) const {
  const std::string path = path_of(name);
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(path, ignored))) return std::nullopt;
  auto file = SealedFile::open(path, key_of(name));
  if (file) return *std::move(file);
  log_.warning("{}; it is computed again", file.error().message());
  fs::remove_all(path, ignored);
  return std::nullopt;
}

void PartialResults::remove(std::string_view name) const {
  std::error_code ignored;
  fs::remove(path_of(name), ignored);
}

void PartialResults::remove_all() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace dllm
