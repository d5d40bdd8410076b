#pragma once

#include <array>
#include <cstdint>

namespace dllm {

/// Counter-based generator Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
/// A draw is a pure function of (key, counter): no state, so results do not depend on threads, batches or order.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// The purpose of a draw; separates the streams of one (step, position).
enum class RngPurpose : std::uint32_t { kToken = 0, kConfidence = 1, kTransfer = 2, kOrder = 3 };

/// Key of one request's stream.
struct RngKey {
  std::uint64_t seed = 0;
  std::uint32_t request = 0;
};

/// The fourth word of the counter: request (30 bits) and purpose, so that their streams never overlap.
constexpr std::uint32_t rng_stream(const RngKey& key, RngPurpose purpose) {
  return (key.request << 2) | static_cast<std::uint32_t>(purpose);
}

/// Uniform double in the open interval (0, 1) with 52 bits, keyed by (seed, request, purpose, step, position, index).
/// `index` is the token for Gumbel noise, else 0.
double uniform01(const RngKey& key, RngPurpose purpose, std::uint32_t step, std::uint32_t position,
                 std::uint32_t index = 0);

/// Standard Gumbel draw -ln(-ln u) in float64: low precision skews sampling (Zheng et al., arXiv 2409.02908).
double gumbel(const RngKey& key, RngPurpose purpose, std::uint32_t step, std::uint32_t position, std::uint32_t index);

}  // namespace dllm
