#include <cstring>

#include "cpu/kernels/kernel_set.h"

namespace dllm::cpu {

bool derive_row(const QuantizedRows& rows, std::int64_t row, std::int64_t k) {
  const std::int64_t groups = k / kScaleBlock;
  const float* scales = rows.scales + row * groups;
  const std::int32_t* sums = rows.sums + row * groups * 2;
  bool regular = true;
  for (std::int64_t g = 0; g < groups; ++g) {
    std::int32_t bits;
    std::memcpy(&bits, scales + g, 4);
    const std::int32_t exponent = (bits >> 23) - 127;
    // A block of zeros may have any finite scale.
    const bool zero = bits == 0;
    regular = regular && (zero || (exponent >= -60 && exponent <= 60));
    rows.exponents[row * groups + g] = zero ? 0 : static_cast<std::int32_t>(static_cast<std::uint32_t>(exponent) << 23);
    rows.multiples[row * groups + g] = ((bits >> 21) & 3) * 64;
    rows.offsets[row * groups + g] = -scales[g] * static_cast<float>(sums[2 * g] + sums[2 * g + 1]);
  }
  return regular;
}

void fill_corrections(const QuantizedRows& q, std::int64_t rows, std::int64_t k, const PackedFormat& format) {
  const std::int64_t count = rows * k / format.group;
  if (format.group == kSumBlock) {
    for (std::int64_t i = 0; i < count; ++i) q.corrections[i] = -format.zero * q.sums[i];
  } else {
    for (std::int64_t i = 0; i < count; ++i) q.corrections[i] = -format.zero * (q.sums[2 * i] + q.sums[2 * i + 1]);
  }
}

LinearArgs from_row(const LinearArgs& args, std::int64_t row) {
  LinearArgs from = args;
  if (from.x != nullptr) {
    from.x += row * from.k;
    return from;
  }
  if (from.groups != nullptr) {
    from.first_row += row;
    return from;
  }
  QuantizedRows& q = from.quantized;
  const std::int64_t groups = row * from.k / kScaleBlock;
  q.values += row * q.stride;
  q.scales += groups;
  q.exponents += groups;
  q.multiples += groups;
  q.offsets += groups;
  q.sums += 2 * groups;
  q.corrections += row * from.k / from.format->group;
  return from;
}

}  // namespace dllm::cpu
