#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "dllm/error.h"

namespace dllm::hub {

enum class DigestKind {
  kNone,     ///< the tag is no digest
  kSha256,   ///< of the bytes: what large files are called on a hub
  kGitBlob,  ///< SHA-1 of "blob SIZE\0" and the bytes: what git calls a file
};

/// What a hub's tag of a file is, by its length.
DigestKind digest_kind(std::string_view etag);

/// The digest of a file, in lower-case hex. `progress` is told the bytes read; false ends it (kCancelled). Errors: kIo.
Expected<std::string> file_digest(const std::string& path, DigestKind kind,
                                  const std::function<bool(std::uint64_t)>& progress);

}  // namespace dllm::hub
