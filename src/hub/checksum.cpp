#include "hub/checksum.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <vector>

#include "hub/digest.h"

namespace dllm::hub {
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
  if (auto digest = sum.finish()) return *std::move(digest);
  return Error{ErrorCode::kResource, "the digest cannot be computed", path, "is the algorithm switched off here?"};
}

Expected<std::string> text_digest(std::string_view bytes) {
  Digest sum(Digest::Algorithm::kSha256);
  sum.add(bytes.data(), bytes.size());
  if (auto digest = sum.finish()) return *std::move(digest);
  return Error{ErrorCode::kResource, "the digest cannot be computed", "", ""};
}

}  // namespace dllm::hub
