#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"

namespace dllm {

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;

/// Random bytes that nobody can foresee. Errors: kResource.
Expected<Nonce> make_nonce();

/// HMAC-SHA256 of who says it, both sides' random bytes, and what is said. Errors: kResource.
Expected<Proof> prove(const std::string& key, std::string_view who, const Nonce& first, const Nonce& worker,
                      std::span<const std::byte> said);

/// In a time that does not depend on where they differ.
bool same_proof(const Proof& a, const Proof& b);

}  // namespace dllm
