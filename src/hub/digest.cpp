#include "hub/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

namespace dllm::hub {

struct Digest::Impl {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context{EVP_MD_CTX_new(), EVP_MD_CTX_free};
  bool sound = false;
};

Digest::Digest(Algorithm algorithm) : impl_(std::make_unique<Impl>()) {
  const EVP_MD* const kind = algorithm == Algorithm::kSha1 ? EVP_sha1() : EVP_sha256();
  impl_->sound = impl_->context && EVP_DigestInit_ex(impl_->context.get(), kind, nullptr) == 1;
}

Digest::~Digest() = default;

bool Digest::add(const void* data, std::size_t size) {
  impl_->sound = impl_->sound && EVP_DigestUpdate(impl_->context.get(), data, size) == 1;
  return impl_->sound;
}

std::optional<std::string> Digest::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  if (!impl_->sound || EVP_DigestFinal_ex(impl_->context.get(), digest.data(), &length) != 1) return std::nullopt;
  std::string hex;
  for (unsigned int i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace dllm::hub
