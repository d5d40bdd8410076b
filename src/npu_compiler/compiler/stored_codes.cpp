#include "npu_compiler/compiler/stored_codes.h"

#include <algorithm>
#include <cstring>

#include "base/to_size.h"
#include "numerics/mx_tensor.h"
#include "numerics/packed.h"

namespace dllm::npu {

void LaneCodes::reset(const MxFormat& format, std::int64_t lanes) {
  codes.assign(to_size(lanes), format.zero());
  scales.assign(format.scale_bytes(codes.size()), 0);
}

namespace {

TensorType stored_type(const MxFormat& format) {
  if (format.element == MxElement::kQ4_0) return TensorType::kQ4_0;
  return format.element == MxElement::kQ8_0 ? TensorType::kQ8_0 : mx_tensor_type(format);
}

}  // namespace

bool keeps_codes(const WeightView& weight, const LaneMap& in, const MxFormat& format) {
  if (!format.scaled() || stored_type(format) != weight.type) return false;
  std::vector<std::int64_t> stored(to_size(ceil_div(in.used(), format.block)), -1);
  for (std::int64_t column = 0; column < in.width; ++column) {
    std::int64_t& block = stored[to_size(in.lane(column) / format.block)];
    if (block >= 0 && block != column / format.block) return false;
    block = column / format.block;
  }
  return true;
}

void lay_codes(const WeightView& weight, std::int64_t row, const LaneMap& in, const MxFormat& format,
               std::int64_t first, LaneCodes& to) {
  const Codec& stored = codec(weight.type);
  const std::byte* at = weight.data.data() + row * stored.row_bytes(weight.shape[0]);
  std::uint16_t codes[32];
  if (format.packed()) {
    for (std::int64_t column = 0; column < in.width; column += format.block, at += stored.block_bytes) {
      std::uint16_t scale = 0;
      read_packed_block(format.element, at, codes, scale);
      for (std::int64_t i = 0; i < format.block; ++i) {
        const auto lane = to_size(first + in.lane(column + i));
        to.codes[lane] = codes[i];
        std::memcpy(to.scales.data() + lane / kPackedBlock * 2, &scale, 2);
      }
    }
    return;
  }
  std::uint8_t scale = 0;
  for (std::int64_t column = 0; column < in.width; column += format.block, at += stored.block_bytes) {
    mx_read_block(format, at, codes, scale);
    for (std::int64_t i = 0; i < format.block; ++i) {
      const bool zero = mx_fixed(format.element, codes[i]) == 0 && !mx_is_special(format.element, codes[i]);
      if (zero && scale != kMxScaleNan) continue;  // a negative zero becomes a positive one: products are the same
      const auto lane = to_size(first + in.lane(column + i));
      to.codes[lane] = codes[i];
      to.scales[lane / to_size(format.block)] = scale;
    }
  }
}

}  // namespace dllm::npu
