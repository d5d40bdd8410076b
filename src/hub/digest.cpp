#include "hub/digest.h"

#include <openssl/evp.h>

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

std::optional<std::vector<unsigned char>> Digest::finish() {
  std::vector<unsigned char> digest(EVP_MAX_MD_SIZE);
  unsigned int length = 0;
  if (!impl_->sound || EVP_DigestFinal_ex(impl_->context.get(), digest.data(), &length) != 1) return std::nullopt;
  digest.resize(length);
  return digest;
}

}  // namespace dllm::hub
