#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "npu_core/machine/arithmetic.h"

namespace dllm::rtl {

/// Deterministic BF16 stimuli, a third of them corner cases: zeros of both signs, infinities, NaNs with payloads,
/// subnormals, the largest numbers.
class Vectors {
 public:
  explicit Vectors(std::uint64_t seed) : random_(seed) {}

  std::uint64_t bits() { return random_(); }
  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_() % limit); }
  bool one_in(std::uint32_t n) { return below(n) == 0; }

  npu::Bf16 corner() {
    static constexpr npu::Bf16 kCorners[] = {0x0000, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0xffc1, 0x7f81, 0x0001, 0x8001,
                                             0x007f, 0x0080, 0x7f7f, 0xff7f, 0x3f80, 0xbf80, 0x42b0, 0xc2b0, 0x42b1};
    return kCorners[below(std::size(kCorners))];
  }
  npu::Bf16 any() { return one_in(3) ? corner() : static_cast<npu::Bf16>(random_()); }
  /// Like a logit: within about 16 of zero.
  npu::Bf16 logit() {
    const auto exponent = static_cast<npu::Bf16>(118 + below(14));
    return static_cast<npu::Bf16>((random_() & 0x8000u) | static_cast<unsigned>(exponent << 7) | (random_() & 0x7fu));
  }

  /// A row of one kind: arbitrary values, logits, few distinct values (ties), all equal, corner cases, zeros above
  /// negative numbers.
  std::vector<npu::Bf16> row(int lanes) {
    std::vector<npu::Bf16> values(static_cast<std::size_t>(lanes));
    const std::uint32_t kind = below(8);
    const npu::Bf16 some[] = {logit(), any(), corner()};
    for (npu::Bf16& value : values) {
      if (kind == 0)
        value = any();
      else if (kind == 1)
        value = some[below(3)];
      else if (kind == 2)
        value = some[0];
      else if (kind == 3)
        value = corner();
      else if (kind == 4)
        value = one_in(16) ? corner() : logit();
      else if (kind == 5)
        value = one_in(2) ? static_cast<npu::Bf16>(below(2) << 15) : static_cast<npu::Bf16>(logit() | 0x8000u);
      else
        value = logit();
    }
    return values;
  }
  /// Active lanes: all, none, or some.
  std::vector<bool> lanes(int count) {
    std::vector<bool> mask(static_cast<std::size_t>(count));
    const std::uint32_t kind = below(6);
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = kind < 3 || (kind > 3 && one_in(2));
    return mask;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace dllm::rtl
