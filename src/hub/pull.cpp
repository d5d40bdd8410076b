#include "hub/pull.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/file_lock.h"
#include "base/try.h"
#include "hub/cache.h"
#include "hub/checksum.h"
#include "hub/http.h"
#include "hub/repository.h"
#include "hub/select.h"

namespace dllm::hub {
namespace {

namespace fs = std::filesystem;

std::string place(const PullRequest& request) {
  return request.name.quant.empty() ? request.name.repository
                                    : fmt::format("{}:{}", request.name.repository, request.name.quant);
}

std::uint64_t size_of(const std::string& path) {
  std::error_code absent;
  const std::uint64_t size = fs::file_size(path, absent);
  return absent ? 0 : size;
}

/// A file that is appended to.
class GrowingFile {
 public:
  explicit GrowingFile(std::string path)
      : path_(std::move(path)), descriptor_(open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644)) {}
  ~GrowingFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  bool begin(std::uint64_t from) {
    const auto at = static_cast<off_t>(from);
    return check(descriptor_ >= 0 && ftruncate(descriptor_, at) == 0 && lseek(descriptor_, at, SEEK_SET) == at);
  }
  bool write(std::span<const char> bytes) { return check(write_all(descriptor_, {bytes.data(), bytes.size()})); }
  bool sync() { return check(descriptor_ >= 0 && fsync(descriptor_) == 0); }

  std::optional<Error> failure() const {
    if (failure_ == 0) return std::nullopt;
    return Error{failure_ == ENOSPC ? ErrorCode::kResource : ErrorCode::kIo, std::strerror(failure_), path_, ""};
  }

 private:
  bool check(bool done) {
    if (!done && failure_ == 0) failure_ = errno;
    return done;
  }

  std::string path_;
  int descriptor_;
  int failure_ = 0;
};

class Puller {
 public:
  Puller(const Config& config, const PullRequest& request, const PullListener& listener)
      : config_(config),
        request_(request),
        listener_(listener),
        cache_(config.cache, request.name.repository),
        http_(config),
        repository_(config, http_, request.name.repository, request.revision) {}

  Expected<Pulled> run() {
    if (config_.offline) return from_cache();
    // If the model is complete in the cache, do not wait for a hub that does not respond.
    const bool complete = cache_.commit_of(request_.revision).has_value();
    const int tries = complete ? 0 : config_.retries;
    http_.set_patience(std::chrono::milliseconds(complete ? HttpClient::kFirstContactMs : HttpClient::kConnectMs),
                       [this, complete](const std::string& url) {
                         if (!complete) listener_.log.warning("{}: no answer yet; is there a network?", url);
                       });
    auto listing = retried([this] { return repository_.list([this] { return tell(); }); }, tries);
    if (listing) return fetch(*std::move(listing));
    if (listing.error().code != ErrorCode::kIo) return std::move(listing).error();
    auto kept = from_cache();
    if (!kept) {
      Error error = std::move(listing).error();
      if (!http_.reached()) {
        error.what = "the hub cannot be reached: " + error.what;
        error.hint = "is there a network? the model is not in the cache either";
      }
      return error;
    }
    listener_.log.warning("{}; using the cached files", listing.error().message());
    return kept;
  }

 private:
  Expected<Pulled> from_cache() const {
    const auto commit = cache_.commit_of(request_.revision);
    if (!commit)
      return Error{ErrorCode::kUsage, "the model is not in the cache", place(request_), "pull it without --offline"};
    DLLM_TRY(const Selection selection,
             select_files(cache_.files(*commit), request_.name.quant, request_.file, place(request_)));
    Pulled pulled = result(*commit, selection);
    pulled.asked = false;
    for (const std::string& file : selection.files)
      pulled.bytes += size_of(fmt::format("{}/{}", cache_.snapshot(*commit), file));
    return pulled;
  }

  Pulled result(const std::string& commit, const Selection& selection) const {
    Pulled pulled;
    pulled.commit = commit;
    pulled.path = cache_.snapshot(commit);
    if (!selection.directory) pulled.path += "/" + selection.files.front();
    return pulled;
  }

  Expected<Pulled> fetch(Listing listing) {
    std::vector<std::string> paths;
    for (const RemoteFile& file : listing.files) paths.push_back(file.path);
    DLLM_TRY(const Selection selection, select_files(paths, request_.name.quant, request_.file, place(request_)));
    const std::unordered_set<std::string_view> chosen(selection.files.begin(), selection.files.end());
    std::erase_if(listing.files, [&](const RemoteFile& file) { return !chosen.contains(file.path); });
    DLLM_CHECK_OK(cache_.make_folders(listing.commit));
    for (RemoteFile& file : listing.files)
      DLLM_CHECK_OK(retried([&] { return repository_.complete(file, listing.commit, [this] { return tell(); }); },
                            config_.retries));
    DLLM_CHECK_OK(check_space(listing.files));
    for (const RemoteFile& file : listing.files) {
      DLLM_CHECK_OK(bring(file, listing.commit));
      DLLM_CHECK_OK(cache_.link(listing.commit, file.path, file.etag));
    }
    DLLM_CHECK_OK(cache_.set_commit(request_.revision, listing.commit));
    Pulled pulled = result(listing.commit, selection);
    pulled.bytes = state_.total;
    pulled.fetched = state_.fetched;
    return pulled;
  }

  Expected<void> check_space(const std::vector<RemoteFile>& files) {
    std::uint64_t missing = 0;
    for (const RemoteFile& file : files) {
      state_.total += file.size;
      if (!fs::exists(cache_.blob(file.etag)))
        missing += file.size - std::min(file.size, size_of(cache_.incomplete(file.etag)));
    }
    if (missing > 0 && listener_.begin) listener_.begin(files.front().path, state_.total, missing);
    std::error_code failure;
    const fs::space_info space = fs::space(config_.cache, failure);
    if (failure || space.available >= missing) return {};
    return Error{ErrorCode::kResource,
                 fmt::format("{} bytes are still to be downloaded, and {} are free", missing, space.available),
                 config_.cache, "make room, or name another folder in HF_HUB_CACHE"};
  }

  /// On return the blob is complete.
  Expected<void> bring(const RemoteFile& file, const std::string& commit) {
    state_.file = file.path;
    DLLM_TRY(const FileLock lock, FileLock::take(cache_.lock(file.etag), [this] { return tell(); }));
    const std::string blob = cache_.blob(file.etag), partial = cache_.incomplete(file.etag);
    std::error_code ignored;
    // Cut by something else than this program.
    if (fs::exists(blob) && file.size > 0 && size_of(blob) != file.size) fs::remove(blob, ignored);
    // Nothing would tell whether what an earlier call left is sound.
    if (digest_kind(file.etag) == DigestKind::kNone) fs::remove(partial, ignored);
    best_ = 0;
    if (!fs::exists(blob)) {
      if (file.size == 0 || size_of(partial) != file.size)
        DLLM_CHECK_OK(retried([&] { return download(file, repository_.url_of(file, commit)); }, config_.retries));
      DLLM_CHECK_OK(check(file, partial));
      std::error_code failure;
      fs::rename(partial, blob, failure);
      if (failure) return Error{ErrorCode::kIo, failure.message(), blob, ""};
    }
    base_ += size_of(blob);
    state_.done = base_;
    tell();
    return {};
  }

  /// One transfer; continues the partial file.
  Expected<void> download(const RemoteFile& file, const std::string& url) {
    const std::string path = cache_.incomplete(file.etag);
    GrowingFile out(path);
    Download to;
    to.begin = [&](std::uint64_t from) {
      state_.done = base_ + from;
      return out.begin(from);
    };
    to.write = [&](std::span<const char> bytes) {
      state_.done += bytes.size();
      state_.fetched += bytes.size();
      return out.write(bytes);
    };
    to.go_on = [this] { return tell(); };
    to.most = file.size > 0 ? file.size : kMostUnannounced;
    const auto response = http_.download(url, std::min(size_of(path), file.size), to);
    out.sync();
    best_ = std::max(best_, size_of(path));
    if (!response && response.error().code == ErrorCode::kMismatch) {
      std::error_code ignored;
      fs::remove(path, ignored);
      return response.error();
    }
    if (const auto failure = out.failure()) {
      disk_failed_ = true;
      return *failure;
    }
    if (!response) return response.error();
    if (response->status == 200 || response->status == 206) return complete(file, path);
    if (response->status != 416) return repository_.refusal(*response, url);
    // The server does not have this range, so the partial file cannot be a part of this file.
    if (!out.begin(0)) return *out.failure();
    return Error{ErrorCode::kIo, "the file at the hub is shorter than its partial download", url, "pull again"};
  }

  static Expected<void> complete(const RemoteFile& file, const std::string& path) {
    if (file.size == 0 || size_of(path) == file.size) return {};
    return Error{ErrorCode::kIo, fmt::format("{} of {} bytes arrived", size_of(path), file.size), file.path,
                 "pull again"};
  }

  Expected<void> check(const RemoteFile& file, const std::string& path) {
    const DigestKind kind = digest_kind(file.etag);
    if (kind == DigestKind::kNone) {
      listener_.log.warning("{}: the hub names no digest, so the bytes were not checked", file.path);
      return {};
    }
    PullProgress progress{PullPhase::kCheck, file.path, 0, file.size, state_.fetched};
    DLLM_TRY(const std::string digest, file_digest(path, kind, [&](std::uint64_t done) {
               progress.done = done;
               return !listener_.progress || listener_.progress(progress);
             }));
    if (digest == file.etag) return {};
    std::error_code ignored;
    fs::remove(path, ignored);
    return Error{ErrorCode::kMismatch, fmt::format("the bytes have the digest {}, the hub says {}", digest, file.etag),
                 file.path, "they were removed; pull again"};
  }

  bool tell() { return !listener_.progress || listener_.progress(state_); }

  /// Repeats `attempt` while connections fail; the count restarts when the file has grown. (Not when bytes were
  /// received: a server may send the same ones again and again.) Without a network, it says so at once.
  template <class Attempt>
  auto retried(Attempt attempt, int retries) -> decltype(attempt()) {
    std::int64_t wait = config_.first_wait_ms;
    std::uint64_t grown = best_;
    for (int tries = 0;; ++tries) {
      auto outcome = attempt();
      if (outcome || outcome.error().code != ErrorCode::kIo || disk_failed_) return outcome;
      if (best_ >= grown + kProgress) {
        grown = best_;
        tries = 0;
        wait = config_.first_wait_ms;
      }
      if (tries >= retries || !http_.reached()) return outcome;
      if (!pause(wait)) return Error{ErrorCode::kCancelled, "the download was stopped", place(request_), ""};
      wait *= 2;
    }
  }

  bool pause(std::int64_t milliseconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    while (std::chrono::steady_clock::now() < end) {
      if (!tell()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(std::min<std::int64_t>(milliseconds, 50)));
    }
    return true;
  }

  const Config& config_;
  const PullRequest& request_;
  const PullListener& listener_;
  RepositoryCache cache_;
  HttpClient http_;
  Repository repository_;
  PullProgress state_;
  static constexpr std::uint64_t kProgress = std::uint64_t{1} << 16;         ///< bytes that make another try worthwhile
  static constexpr std::uint64_t kMostUnannounced = std::uint64_t{4} << 30;  ///< of a file whose size no answer names
  std::uint64_t base_ = 0;                                                   ///< bytes of the completed files
  std::uint64_t best_ = 0;    ///< largest size of the current partial file
  bool disk_failed_ = false;  ///< further attempts would not help
};

}  // namespace

Expected<Pulled> pull(const Config& config, const PullRequest& request, const PullListener& listener) {
  if (!is_repository(request.name.repository) || !is_inner_path(request.revision))
    return Error{ErrorCode::kUsage, "no name of a model on a hub", place(request), ""};
  return Puller(config, request, listener).run();
}

}  // namespace dllm::hub
