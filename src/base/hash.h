#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace dllm {

/// FNV-1a, 64 bits (Fowler, Noll, Vo): byte by byte, the same on every machine. For file names and hashes of results;
/// not secure against an adversary.
class Fnv1a {
 public:
  static constexpr std::uint64_t kBasis = 0xcbf29ce484222325u, kPrime = 0x100000001b3u;

  constexpr explicit Fnv1a(std::uint64_t start = kBasis) : hash_(start) {}

  constexpr Fnv1a& add(std::uint8_t byte) {
    hash_ = (hash_ ^ byte) * kPrime;
    return *this;
  }
  constexpr Fnv1a& add(std::string_view text) {
    for (const char c : text) add(static_cast<std::uint8_t>(c));
    return *this;
  }
  constexpr Fnv1a& add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) add(static_cast<std::uint8_t>(byte));
    return *this;
  }
  /// The four bytes of a word, lowest first.
  constexpr Fnv1a& add_word(std::uint32_t word) {
    for (int shift = 0; shift < 32; shift += 8) add(static_cast<std::uint8_t>(word >> shift));
    return *this;
  }
  constexpr std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_;
};

/// 2^64 / the golden ratio, odd: multiplying by it is a bijection that spreads low bits over the word (Knuth, The Art
/// of Computer Programming 3, 6.4).
inline constexpr std::uint64_t kGolden64 = 0x9e3779b97f4a7c15u;

/// Adds a whole word to a hash in one multiplication, for which Fnv1a needs eight.
constexpr std::uint64_t mix64(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * kGolden64;
  return hash ^ (hash >> 32);
}

/// Next number of the SplitMix64 generator (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014): one word of state, enough for test data and addresses. Draws of a request use base/rng.h.
constexpr std::uint64_t splitmix64(std::uint64_t& state) {
  std::uint64_t z = (state += kGolden64);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace dllm
