#include "base/checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/hash.h"

namespace dllm {

void Checksum::take(Lanes& lanes, const std::byte* stride) {
  std::uint64_t words[kLanes];
  std::memcpy(words, stride, kStride);
  for (std::size_t l = 0; l < kLanes; ++l) {
    // Odd multiplier: a bijection of the lane, so that a single changed word is always detected.
    lanes[l] = std::rotl((lanes[l] ^ words[l]) * kGolden64, 29);
  }
}

void Checksum::add(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  if (pending_ > 0) {
    const std::size_t count = std::min(bytes.size(), kStride - pending_);
    std::copy_n(bytes.begin(), count, rest_.begin() + static_cast<std::ptrdiff_t>(pending_));
    bytes = bytes.subspan(count);
    pending_ += count;
    if (pending_ < kStride) return;
    take(lanes_, rest_.data());
    pending_ = 0;
  }
  Lanes lanes = lanes_;  // a copy that cannot overlap the bytes stays in registers
  for (; bytes.size() >= kStride; bytes = bytes.subspan(kStride)) take(lanes, bytes.data());
  lanes_ = lanes;
  std::ranges::copy(bytes, rest_.begin());
  pending_ = bytes.size();
}

std::uint64_t Checksum::value() const {
  std::uint64_t hash = mix64(Fnv1a().add(std::span(rest_).first(pending_)).value(), size_);
  for (const std::uint64_t lane : lanes_) hash = mix64(hash, lane);
  return hash;
}

}  // namespace dllm
