#include <cstring>

#include "cpu/kernels/kernel_set.h"

namespace dllm::cpu {

bool derive_groups(const QuantizedRows& rows, std::int64_t first, std::int64_t count) {
  bool regular = true;
  for (std::int64_t g = first; g < first + count; ++g) {
    std::int32_t bits;
    std::memcpy(&bits, rows.scales + g, 4);
    const std::int32_t exponent = (bits >> 23) - 127;
    // A block of zeros may have any finite scale.
    const bool zero = bits == 0;
    regular = regular && (zero || (exponent >= -60 && exponent <= 60));
    rows.exponents[g] = zero ? 0 : static_cast<std::int32_t>(static_cast<std::uint32_t>(exponent) << 23);
    rows.multiples[g] = ((bits >> 21) & 3) * 64;
    rows.offsets[g] = -rows.scales[g] * static_cast<float>(rows.sums[2 * g] + rows.sums[2 * g + 1]);
  }
  return regular;
}

void fill_corrections(const QuantizedRows& q, std::int64_t rows, std::int64_t k, const PackedFormat& format) {
  const std::int64_t count = rows * k / format.group;
  if (has_half_offsets(format)) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float offset = -q.scales[i / 2] * static_cast<float>(q.sums[i]);
      std::memcpy(q.corrections + i, &offset, 4);
    }
  } else if (format.group == kSumBlock) {
    for (std::int64_t i = 0; i < count; ++i) q.corrections[i] = -format.zero * q.sums[i];
  } else {
    for (std::int64_t i = 0; i < count; ++i) q.corrections[i] = -format.zero * (q.sums[2 * i] + q.sums[2 * i + 1]);
  }
}

LinearArgs from_row(const LinearArgs& args, std::int64_t row) {
  LinearArgs from = args;
  switch (from.operands) {
    case LinearOperands::kPlain:
      from.plain.x += row * from.k;
      break;
    case LinearOperands::kPackedFloats:
      from.grouped.first_row += row;
      break;
    case LinearOperands::kSuper:
      from.super_rows.first_row += row;
      break;
    case LinearOperands::kPackedCodes: {
      QuantizedRows& q = from.quantized;
      const std::int64_t groups = row * from.k / kScaleBlock;
      q.values += row * q.stride;
      q.scales += groups;
      q.exponents += groups;
      q.multiples += groups;
      q.offsets += groups;
      q.sums += 2 * groups;
      q.corrections += row * from.k / from.panels.format->group;
      break;
    }
  }
  return from;
}

}  // namespace dllm::cpu
