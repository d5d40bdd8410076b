#include "hub/repository.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/try.h"

namespace dllm::hub {
namespace {

/// A name that is safe as a file name in the cache.
bool is_tag(std::string_view text) {
  return !text.empty() && text.size() <= 128 && text.front() != '.' && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

/// W/"abc" and "abc" -> abc
std::string bare(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
  return std::string(etag);
}

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::uint64_t number_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

RemoteFile remote_file(const nlohmann::json& sibling) {
  RemoteFile file{text_of(sibling, "rfilename"), number_of(sibling, "size"), text_of(sibling, "blobId")};
  if (const auto lfs = sibling.find("lfs"); lfs != sibling.end() && lfs->is_object()) {
    // The blob is git's pointer to the file; the file itself is identified by its SHA-256.
    file.etag = text_of(*lfs, "sha256");
    if (const std::uint64_t size = number_of(*lfs, "size"); size > 0) file.size = size;
  }
  if (!is_tag(file.etag)) file.etag.clear();
  return file;
}

}  // namespace

std::string Repository::url_of(const RemoteFile& file, std::string_view commit) const {
  return fmt::format("{}/{}/resolve/{}/{}", config_.endpoint, name_, HttpClient::escaped(commit, true),
                     HttpClient::escaped(file.path));
}

Error Repository::refusal(const Response& response, const std::string& url) const {
  const std::string_view code = response.header("x-error-code");
  const auto usage = [this](std::string what, std::string hint) {
    return Error{ErrorCode::kUsage, std::move(what), name_, std::move(hint)};
  };
  if (code == "GatedRepo" || response.status == 403)
    return usage("the hub requires consent or access rights for this repository",
                 fmt::format("open {}/{} in a browser, accept its terms, and set HF_TOKEN", config_.endpoint, name_));
  if (response.status == 401)
    return usage(config_.token.empty() ? "the hub has no such public repository" : "the hub refuses the token",
                 config_.token.empty() ? "check the name; for private and gated models set HF_TOKEN"
                                       : "check HF_TOKEN and the name");
  if (code == "RevisionNotFound") return usage(fmt::format("there is no revision '{}'", revision_), "check --revision");
  if (response.status == 404) return usage("the hub has no such repository, revision or file", "check the name");
  return {ErrorCode::kIo, fmt::format("the hub answers {}", response.status), url,
          response.status == 429 ? "too many requests: wait, or set HF_TOKEN" : "try again later"};
}

Expected<Listing> Repository::list(const std::function<bool()>& go_on) {
  const std::string url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", config_.endpoint, name_,
                                      HttpClient::escaped(revision_, true));
  DLLM_TRY(const Response response, http_.get(url, go_on));
  if (response.status != 200) return refusal(response, url);
  const auto json = nlohmann::json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  const Error unusable{ErrorCode::kInvalidFile, "the hub's answer cannot be used", url, "is this a model hub?"};
  if (!json.is_object() || !json.contains("siblings") || !json["siblings"].is_array()) return unusable;
  Listing listing{text_of(json, "sha"), {}};
  if (!is_tag(listing.commit)) return unusable;
  for (const nlohmann::json& sibling : json["siblings"]) {
    if (!sibling.is_object()) return unusable;
    RemoteFile file = remote_file(sibling);
    if (!is_inner_path(file.path))
      return Error{ErrorCode::kInvalidFile, fmt::format("the hub names a file '{}'", file.path), url,
                   "a path like this could leave the cache"};
    listing.files.push_back(std::move(file));
  }
  return listing;
}

Expected<void> Repository::complete(RemoteFile& file, const std::string& commit, const std::function<bool()>& go_on) {
  if (!file.etag.empty()) return {};
  const std::string url = url_of(file, commit);
  DLLM_TRY(const Response response, http_.head(url, go_on));
  if (response.status != 200) return refusal(response, url);
  const std::string_view linked = response.header("x-linked-etag");
  file.etag = bare(linked.empty() ? response.header("etag") : linked);
  if (!is_tag(file.etag))
    return Error{ErrorCode::kInvalidFile, "the hub returns no ETag for the file", url, "is this a model hub?"};
  const std::string_view size =
      response.header(response.headers.contains("x-linked-size") ? "x-linked-size" : "content-length");
  std::from_chars(size.data(), size.data() + size.size(), file.size);
  return {};
}

}  // namespace dllm::hub
