#include "hub/checksum.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <vector>

#include "hub/digest.h"

namespace dllm::hub {
namespace {

/// In hexadecimal digits. `where` is what the bytes are of.
Expected<std::string> finished(Digest& sum, const std::string& where) {
  const auto digest = sum.finish();
  if (!digest)
    return Error{ErrorCode::kResource, "the digest cannot be computed", where, "is the algorithm switched off here?"};
  std::string hex;
  for (const unsigned char byte : *digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace

DigestKind digest_kind(std::string_view etag) {
  const bool hex = std::ranges::all_of(etag, [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (hex && etag.size() == 64) return DigestKind::kSha256;
  return hex && etag.size() == 40 ? DigestKind::kGitBlob : DigestKind::kNone;
}

Expected<std::string> file_digest(const std::string& path, DigestKind kind,
                                  const std::function<bool(std::uint64_t)>& progress) {
  std::error_code failure;
  const std::uint64_t size = std::filesystem::file_size(path, failure);
  std::ifstream file(path, std::ios::binary);
  if (failure || !file) return Error{ErrorCode::kIo, "cannot be read", path, ""};
  Digest sum(kind == DigestKind::kGitBlob ? Digest::Algorithm::kSha1 : Digest::Algorithm::kSha256);
  if (kind == DigestKind::kGitBlob) {
    const std::string head = fmt::format("blob {}", size);
    sum.add(head.c_str(), head.size() + 1);
  }
  std::vector<char> buffer(std::size_t{1} << 20);
  for (std::uint64_t done = 0; done < size;) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    const auto count = static_cast<std::size_t>(file.gcount());
    if (count == 0) return Error{ErrorCode::kIo, "cannot be read to its end", path, ""};
    if (!sum.add(buffer.data(), count)) break;
    done += count;
    if (progress && !progress(done)) return Error{ErrorCode::kCancelled, "the check was stopped", path, ""};
  }
  return finished(sum, path);
}

Expected<std::string> text_digest(std::string_view bytes) {
  Digest sum(Digest::Algorithm::kSha256);
  sum.add(bytes.data(), bytes.size());
  return finished(sum, "");
}

}  // namespace dllm::hub
