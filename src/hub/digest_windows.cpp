#include <windows.h>
// Its types are those of the header above.
#include <bcrypt.h>

#include "hub/digest.h"

namespace dllm::hub {

struct Digest::Impl {
  BCRYPT_ALG_HANDLE algorithm = nullptr;
  BCRYPT_HASH_HANDLE hash = nullptr;
  ULONG length = 0;
  bool sound = false;
  ~Impl() {
    if (hash != nullptr) BCryptDestroyHash(hash);
    if (algorithm != nullptr) BCryptCloseAlgorithmProvider(algorithm, 0);
  }
};

Digest::Digest(Algorithm algorithm) : impl_(std::make_unique<Impl>()) {
  const wchar_t* const name = algorithm == Algorithm::kSha1 ? BCRYPT_SHA1_ALGORITHM : BCRYPT_SHA256_ALGORITHM;
  impl_->length = algorithm == Algorithm::kSha1 ? 20 : 32;
  impl_->sound = BCryptOpenAlgorithmProvider(&impl_->algorithm, name, nullptr, 0) >= 0 &&
                 BCryptCreateHash(impl_->algorithm, &impl_->hash, nullptr, 0, nullptr, 0, 0) >= 0;
}

Digest::~Digest() = default;

bool Digest::add(const void* data, std::size_t size) {
  auto* const bytes = static_cast<PUCHAR>(const_cast<void*>(data));
  impl_->sound = impl_->sound && BCryptHashData(impl_->hash, bytes, static_cast<ULONG>(size), 0) >= 0;
  return impl_->sound;
}

std::optional<std::vector<unsigned char>> Digest::finish() {
  std::vector<unsigned char> digest(impl_->length);
  if (!impl_->sound || BCryptFinishHash(impl_->hash, digest.data(), impl_->length, 0) < 0) return std::nullopt;
  return digest;
}

}  // namespace dllm::hub
