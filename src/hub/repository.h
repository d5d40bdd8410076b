#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "hub/config.h"
#include "hub/http.h"

namespace dllm::hub {

struct RemoteFile {
  std::string path;
  std::uint64_t size = 0;  ///< 0: unknown
  std::string etag;        ///< the name of its blob: a digest where the hub has one
};

/// A repository at one commit.
struct Listing {
  std::string commit;
  std::vector<RemoteFile> files;
};

/// Queries to a hub.
class Repository {
 public:
  /// All arguments are borrowed.
  Repository(const Config& config, HttpClient& http, std::string name, std::string revision)
      : config_(config), http_(http), name_(std::move(name)), revision_(std::move(revision)) {}

  /// GET /api/models/NAME/revision/REVISION?blobs=true. Errors: kIo (no hub there), kUsage (no such repository or
  /// revision, or it requires a token), kInvalidFile (an unusable response).
  Expected<Listing> list(const std::function<bool()>& go_on);

  /// Fills in etag and size by HEAD where list() did not return them.
  Expected<void> complete(RemoteFile& file, const std::string& commit, const std::function<bool()>& go_on);

  std::string url_of(const RemoteFile& file, std::string_view commit) const;
  /// The user's error for a status other than success.
  Error refusal(const Response& response, const std::string& url) const;

 private:
  const Config& config_;
  HttpClient& http_;
  std::string name_, revision_;
};

}  // namespace dllm::hub
