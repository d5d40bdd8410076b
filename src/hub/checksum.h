#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "dllm/error.h"

namespace dllm::hub {

enum class DigestKind {
  kNone,     ///< the tag is not a digest
  kSha256,   ///< of the bytes: a hub's tag for large files
  kGitBlob,  ///< SHA-1 of "blob SIZE\0" and the bytes: git's name for a file
};

/// The kind of a hub's tag for a file, by its length.
DigestKind digest_kind(std::string_view etag);

/// The digest of a file, in lower-case hex. Calls `progress` with the bytes read; false cancels (kCancelled). Errors:
/// kIo.
Expected<std::string> file_digest(const std::string& path, DigestKind kind,
                                  const std::function<bool(std::uint64_t)>& progress);

/// SHA-256 of bytes in memory, in lower-case hex. Errors: kResource.
Expected<std::string> text_digest(std::string_view bytes);

}  // namespace dllm::hub
