#include "npu_core/machine/accumulator.h"

namespace dllm::npu {

void Accumulator::clear() {
  mode = Mode::kEmpty;
  terms = 0;
  groups = rows = cols = 0;
}

bool Accumulator::open(Mode wanted, std::uint32_t g, std::uint32_t r, std::uint32_t c, int guard_bits, int shift) {
  if (mode != Mode::kEmpty)
    return mode == wanted && groups == g && rows == r && cols == c && guard == guard_bits && scale_shift == shift;
  mode = wanted;
  groups = g;
  rows = r;
  cols = c;
  guard = guard_bits;
  scale_shift = shift;
  const std::size_t count = std::size_t{g} * r * c;
  if (wanted == Mode::kFloat) {
    sum.assign(count, 0.0f);
  } else {
    value.assign(count, 0);
    reference.assign(count, kNoReference);
    nan.assign(count, 0);
  }
  return true;
}

Bf16 Accumulator::lane(LaneFormat format, std::size_t i) const {
  if (mode == Mode::kEmpty) return 0;
  if (mode == Mode::kFloat) return result_to_lane(format, sum[i]);
  if (nan[i] != 0) return lane_nan(format);
  return value[i] == 0 ? Bf16{0} : fixed_to_lane(format, value[i], reference[i] - guard + scale_shift);
}

float Accumulator::f32(std::size_t i) const {
  if (mode == Mode::kEmpty) return 0.0f;
  if (mode == Mode::kFloat) return sum[i];
  if (nan[i] != 0) return bf16_to_f32(kBf16Nan);
  return value[i] == 0 ? 0.0f : fixed_to_f32(value[i], reference[i] - guard + scale_shift);
}

}  // namespace dllm::npu
