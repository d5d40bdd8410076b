#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace dllm::hub {

/// A digest of bytes that come in pieces, by the system's library of cryptography, which may refuse an algorithm.
class Digest {
 public:
  enum class Algorithm { kSha1, kSha256 };
  explicit Digest(Algorithm algorithm);
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  /// False: refused.
  bool add(const void* data, std::size_t size);
  /// nullopt: refused. Call it once, last.
  std::optional<std::vector<unsigned char>> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dllm::hub
