#include "hub/checksum.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

namespace dllm::hub {
namespace {

/// The digest in hex, of what the context has read.
Expected<std::string> finished(EVP_MD_CTX* context, const std::string& where) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  if (EVP_DigestFinal_ex(context, digest.data(), &length) != 1)
    return Error{ErrorCode::kResource, "the digest cannot be computed", where, "is the algorithm switched off here?"};
  std::string hex;
  for (unsigned int i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
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
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  bool sound = context &&
               EVP_DigestInit_ex(context.get(), kind == DigestKind::kGitBlob ? EVP_sha1() : EVP_sha256(), nullptr) == 1;
  if (kind == DigestKind::kGitBlob) {
    const std::string head = fmt::format("blob {}", size);
    sound = sound && EVP_DigestUpdate(context.get(), head.c_str(), head.size() + 1) == 1;
  }
  std::vector<char> buffer(std::size_t{1} << 20);
  for (std::uint64_t done = 0; sound && done < size;) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    const auto count = static_cast<std::size_t>(file.gcount());
    if (count == 0) return Error{ErrorCode::kIo, "cannot be read to its end", path, ""};
    sound = EVP_DigestUpdate(context.get(), buffer.data(), count) == 1;
    done += count;
    if (progress && !progress(done)) return Error{ErrorCode::kCancelled, "the check was stopped", path, ""};
  }
  if (!sound)
    return Error{ErrorCode::kResource, "the digest cannot be computed", path, "is the algorithm switched off here?"};
  return finished(context.get(), path);
}

Expected<std::string> text_digest(std::string_view bytes) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1 ||
      EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()) != 1)
    return Error{ErrorCode::kResource, "the digest cannot be computed", "", ""};
  return finished(context.get(), "");
}

}  // namespace dllm::hub
