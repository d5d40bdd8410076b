#include "vulkan/peaks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>

#include "base/try.h"
#include "vulkan/buffer.h"
#include "vulkan/commands.h"
#include "vulkan/product.h"
#include "vulkan/timestamps.h"

namespace dllm::vulkan {
namespace {

struct PeakReadPush {
  VkDeviceAddress from, to;
  std::uint32_t count, stride;
};
struct PeakRatePush {
  VkDeviceAddress to;
  std::uint32_t rounds, seed;
};

/// How much a device is given: a driver for processors takes as long for a thousandth of a card's work.
struct Load {
  explicit Load(const DeviceFacts& facts) {
    if (facts.type == VK_PHYSICAL_DEVICE_TYPE_CPU) groups = 16, rounds = 64, bytes = std::int64_t{1} << 26, warm = 0;
  }
  std::uint32_t groups = 132 * 16, rounds = 4096;
  std::int64_t bytes = std::int64_t{1} << 31;
  double warm = 0.2;  ///< seconds
};

/// No float of these shaders matters, so the form is the one that asks nothing of the device.
constexpr ShaderForm kForm = ShaderForm::kFloat64;

template <class Push>
Expected<double> seconds_of(const std::shared_ptr<Device>& device, const Pipeline& pipeline, const Push& push,
                            std::uint32_t groups) {
  DLLM_TRY(const Timestamps times, Timestamps::make(device, 2));
  DLLM_TRY(Commands commands, Commands::begin(device));
  commands.stamp(times, 0);
  commands.dispatch(pipeline, push, GroupCounts{groups});
  commands.stamp(times, 1);
  DLLM_CHECK_OK(commands.end());
  double least = 1e9;
  for (int run = 0; run < 3; ++run) {
    DLLM_CHECK_OK(commands.run("the measurement of peaks"));
    DLLM_TRY(const std::vector<double> noted, times.read(2));
    least = std::min(least, noted[1] * 1e-9);
  }
  return std::max(least, 1e-9);
}

/// Operations a second of a shader that does `operations` eight times in a round, in each invocation, or in each
/// subgroup of a `shape`.
Expected<double> rate_of(const std::shared_ptr<Device>& device, std::string_view shader, double operations,
                         const std::optional<MatrixShape>& shape = {}) {
  const DeviceFacts& facts = device->facts();
  const Load load(facts);
  PipelineConstants constants{};
  const std::uint32_t subgroup = std::max(facts.subgroup, 1U), threads = shape ? 4 * subgroup : 256;
  constants[9] = threads, constants[10] = subgroup;
  if (shape) constants[11] = shape->m, constants[12] = shape->n, constants[13] = shape->k;
  DLLM_TRY(const Pipeline pipeline, Pipeline::make(device, shader, kForm, constants));
  DLLM_TRY(const Buffer to, Buffer::make(device, 64, Place::kDevice, "the measurement of peaks"));
  DLLM_TRY(const double seconds, seconds_of(device, pipeline, PeakRatePush{to.address(), load.rounds, 3}, load.groups));
  return operations * 8 * load.rounds * load.groups * (shape ? 4 : threads) / seconds;
}

double operations_of(const MatrixShape& shape) { return 2.0 * shape.m * shape.n * shape.k; }

Expected<double> read_rate(const std::shared_ptr<Device>& device) {
  const Load load(device->facts());
  // A model may have taken most of the memory.
  std::optional<Buffer> from;
  std::int64_t bytes = load.bytes;
  for (;; bytes /= 2) {
    auto made = Buffer::make(device, bytes, Place::kDevice, "the measurement of peaks");
    if (!made && bytes <= std::int64_t{1} << 24) return made.error();
    if (!made) continue;
    from = std::move(*made);
    break;
  }
  DLLM_TRY(const Buffer to, Buffer::make(device, 64, Place::kDevice, "the measurement of peaks"));
  DLLM_TRY(const Pipeline pipeline, Pipeline::make(device, "peak_read", kForm, {}));
  constexpr std::uint32_t kPieces = 64, kThreads = 256;
  const auto groups = static_cast<std::uint32_t>(bytes / 16 / kPieces / kThreads);
  DLLM_TRY(
      const double seconds,
      seconds_of(device, pipeline, PeakReadPush{from->address(), to.address(), kPieces, groups * kThreads}, groups));
  return static_cast<double>(bytes) / seconds;
}

std::string shape_name(const char* type, const MatrixShape& shape) {
  return fmt::format("{} matrices of {} x {} x {}", type, shape.m, shape.n, shape.k);
}

}  // namespace

cpu::Peaks DevicePeaks::summary() const {
  cpu::Peaks all;
  all.read_bytes_per_second = read;
  all.int8 = matrices > dots ? cpu::Peaks::Rate{matrices, shape_name("int8", matrix_shape)}
                             : cpu::Peaks::Rate{dots, "integer dot products"};
  all.f16 = {halves, shape_name("F16", half_shape)};
  all.f32 = {floats, "fma"};
  return all;
}

Expected<DevicePeaks> measure_peaks(const std::shared_ptr<Device>& device) {
  const DeviceFacts& facts = device->facts();
  DevicePeaks peaks;
  const auto begin = std::chrono::steady_clock::now();
  const double warm = Load(facts).warm;
  do {
    DLLM_TRY(peaks.floats, rate_of(device, "peak_floats", 2));
  } while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < warm);
  DLLM_TRY(peaks.floats, rate_of(device, "peak_floats", 2));
  DLLM_TRY(peaks.read, read_rate(device));
  if (facts.has_dots) {
    DLLM_TRY(peaks.dots, rate_of(device, "peak_dots", 8));
  }
  // A driver that lists matrices need not compile them.
  if (facts.subgroup != 0)
    for (const MatrixShape& shape : facts.matrices)
      if (const auto rate = rate_of(device, "peak_matrices", operations_of(shape), shape);
          rate && *rate > peaks.matrices)
        peaks.matrices = *rate, peaks.matrix_shape = shape;
  if (const auto shape = half_shape_of(facts))
    if (const auto rate = rate_of(device, fmt::format("peak_halves_m{}n{}k{}", shape->m, shape->n, shape->k),
                                  operations_of(*shape), shape))
      peaks.halves = *rate, peaks.half_shape = *shape;
  return peaks;
}

}  // namespace dllm::vulkan
