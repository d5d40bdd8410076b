// Products with F32, F16 and BF16 weights: as they are, and in F16 on matrix units.
#include <fmt/format.h>

#include <cmath>
#include <span>

#include "base/try.h"
#include "vulkan/operators.h"
#include "vulkan/shader_numbers.h"

namespace dllm::vulkan {
namespace {

using Address = VkDeviceAddress;

struct HalvesPush {
  Address x, halves, scales;
  std::uint32_t k, words;
};
struct LinearHalvesPush {
  Address panels, halves, scales, bias, result, count, route;
  std::uint32_t k = 0, n = 0, panel_words = 0, half_words = 0, has_bias = 0, used = 0, expert_words = 0,
                shared_rows = 0;
  std::int32_t exponent = 0;
  float scale = 0;
};
struct LinearFloatsPush {
  Address panels, x, bias, result, count, route;
  std::uint32_t k = 0, n = 0, panel_words = 0, has_bias = 0, used = 0, expert_words = 0, shared_rows = 0, zero = 0;
};

template <class Push>
std::span<const std::byte> bytes_of(const Push& push) {
  static_assert(sizeof push <= kMostPushBytes);
  return std::as_bytes(std::span(&push, 1));
}

std::uint32_t whole(std::int64_t number) { return static_cast<std::uint32_t>(number); }

/// What both products are told of a matrix, in `push`.
template <class Push>
void describe(const DeviceMatrix& matrix, Address bias, const ExpertPairs& pairs, Push& push) {
  push.k = whole(matrix.k), push.n = whole(matrix.n);
  push.panel_words = whole(matrix.layout.bytes / 4), push.expert_words = whole(matrix.expert_bytes / 4);
  push.has_bias = bias != 0 ? 1 : 0, push.used = whole(pairs.used), push.shared_rows = pairs.shared_rows ? 1 : 0;
}

}  // namespace

Expected<Launch> Operators::floats_product(const DeviceMatrix& matrix, Address x, Address bias, const RowCount& rows,
                                           Address out, const ExpertPairs& pairs) {
  const bool of_pairs = pairs.route != 0;
  if (arithmetic_.kernels && (!of_pairs || pairs.experts != 0)) return floats_kernel(matrix, x, bias, rows, out, pairs);
  const std::uint32_t tile = of_pairs ? 1 : kProductRows;
  const Constants constants{float_number(matrix.format->type), 0, 0, 0, 0, of_pairs ? 1U : 0U, tile};
  DLLM_TRY(const Compiled* const compiled, pipeline("linear_floats", constants));
  LinearFloatsPush push{matrix.panels, x, bias, out, rows.count, pairs.route};
  describe(matrix, bias, pairs, push);
  return launch_of(*compiled, bytes_of(push), (matrix.n + 63) / 64, tile);
}

Expected<Launch> Operators::halves(std::int64_t k, Address x, const DeviceCodes& to) {
  DLLM_TRY(const Compiled* const compiled, pipeline("halves", {}));
  return launch_of(*compiled, bytes_of(HalvesPush{x, to.values, to.scales, whole(k), whole(half_words(k))}), 1, 1);
}

Expected<Launch> Operators::halves_product(const DeviceMatrix& matrix, const DeviceCodes& codes, Address bias,
                                           const RowCount& rows, Address out, const ExpertPairs& pairs) {
  DLLM_TRY(const ProductUnits* const units, product_units());
  if (!units->half_shape)
    return Error{ErrorCode::kUnsupported, fmt::format("{} has no matrix units for F16", device_->facts().name),
                 "--arithmetic", "leave it out"};
  const bool of_pairs = pairs.route != 0;
  const std::uint32_t tile = rows.most <= units->half_shape->n && !of_pairs ? units->half_shape->n : 32;
  // The largest weight becomes 2^15 to 2^16.
  const std::int32_t lost = *matrix.half_exponent - 30;
  LinearHalvesPush push{matrix.panels, codes.values, codes.scales, bias, out, rows.count, pairs.route};
  describe(matrix, bias, pairs, push);
  push.half_words = whole(half_words(matrix.k));
  push.exponent = lost, push.scale = std::ldexp(1.f, lost - 112);
  const Constants constants{float_number(matrix.format->type), 0, 0, 0, 0, of_pairs ? 1U : 0U};
  DLLM_TRY(const Compiled* const compiled, pipeline(half_product(*units->half_shape, tile), constants));
  DLLM_TRY(Launch made, launch_of(*compiled, bytes_of(push), (matrix.n + 63) / 64, tile));
  made.experts = of_pairs ? whole(pairs.experts) : 0;
  return made;
}

}  // namespace dllm::vulkan
