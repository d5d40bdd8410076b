#include "ranks/proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

namespace dllm {

Expected<Nonce> make_nonce() {
  Nonce nonce;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) != 1)
    return Error{ErrorCode::kResource, "the system gives no random bytes", "OpenSSL", "is /dev/urandom there?"};
  return nonce;
}

Expected<Proof> prove(const std::string& key, std::string_view who, const Nonce& first, const Nonce& worker,
                      std::span<const std::byte> said) {
  std::vector<std::byte> text;
  const auto add = [&text](const void* data, std::size_t size) {
    const auto* const at = static_cast<const std::byte*>(data);
    text.insert(text.end(), at, at + size);
  };
  add(who.data(), who.size());
  add("", 1);
  add(first.data(), first.size());
  add(worker.data(), worker.size());
  add(said.data(), said.size());
  Proof proof;
  unsigned int length = 0;
  // An empty key still needs an address.
  const char* const bytes = key.empty() ? "" : key.data();
  if (HMAC(EVP_sha256(), bytes, static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), reinterpret_cast<unsigned char*>(proof.data()), &length) == nullptr ||
      length != proof.size())
    return Error{ErrorCode::kResource, "the HMAC cannot be computed", "OpenSSL", "is SHA-256 switched off here?"};
  return proof;
}

bool same_proof(const Proof& a, const Proof& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace dllm
