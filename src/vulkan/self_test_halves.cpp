// Products in F16 on a device's matrix units against sums in float64.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/try.h"
#include "cpu/kernels/packed.h"
#include "vulkan/operators.h"
#include "vulkan/product.h"
#include "vulkan/self_test.h"

namespace dllm::vulkan {
namespace {

constexpr std::int64_t kHalfRows = 11, kHalfWidth = 150, kHalfOutputs = 40;  // no whole chunks, tiles or panels

std::uint32_t half_random(std::uint32_t i, std::uint32_t stream) { return philox4x32({i, stream, 0, 0}, {38, 0})[0]; }

/// A number that F16 and BF16 have: an integer from -8 to 7, or one of eight bits and any of 16 exponents.
float half_operand(std::uint32_t i, std::uint32_t stream, bool integers) {
  const std::uint32_t random = half_random(i, stream);
  if (integers) return static_cast<float>(random % 16) - 8.f;
  const float sign = (random & 0x100U) != 0 ? -1.f : 1.f;
  return sign * std::ldexp(static_cast<float>(128 + random % 128), -static_cast<int>(random >> 9 & 15U) - 7);
}

std::uint16_t half_bits(float value, TensorType type) {
  std::uint16_t bits = 0;
  codec(type).quantize(&value, reinterpret_cast<std::byte*>(&bits), 1);
  return bits;
}

/// Panels as src/cpu/kernels/packed.h has them.
std::vector<std::uint16_t> half_panels(TensorType type, std::int64_t panel_bytes, bool integers) {
  const std::int64_t panels = (kHalfOutputs + cpu::kPanel - 1) / cpu::kPanel, panel = panel_bytes / 2;
  std::vector<std::uint16_t> words(static_cast<std::size_t>(panels * panel));
  for (std::int64_t n = 0; n < kHalfOutputs; ++n)
    for (std::int64_t k = 0; k < kHalfWidth; ++k) {
      const std::int64_t lane = n % cpu::kPanel;
      const std::int64_t at =
          type == TensorType::kF16 ? k * cpu::kPanel + lane : (k / 2 * cpu::kPanel + lane) * 2 + k % 2;
      words[static_cast<std::size_t>(n / cpu::kPanel * panel + at)] =
          half_bits(half_operand(static_cast<std::uint32_t>(n * kHalfWidth + k), 1, integers), type);
    }
  return words;
}

template <class T>
Expected<Buffer> put_half_test(const std::shared_ptr<Device>& device, const std::vector<T>& values) {
  const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(T));
  DLLM_TRY(Buffer buffer, Buffer::make(device, bytes, Place::kShared, "the self-test"));
  std::memcpy(buffer.data(), values.data(), values.size() * sizeof(T));
  return buffer;
}

/// What a device makes of the products: [rows][outputs].
Expected<std::vector<float>> half_products(Operators& operators, TensorType type, bool integers) {
  const std::shared_ptr<Device>& device = operators.device();
  const cpu::PackedFormat& format = *cpu::packed_format(type);
  const cpu::PackedLayout layout = cpu::packed_layout(format, kHalfWidth);
  std::vector<float> x;
  for (std::uint32_t i = 0; i < kHalfRows * kHalfWidth; ++i) x.push_back(half_operand(i, 2, integers));
  DLLM_TRY(const Buffer from, put_half_test(device, x));
  DLLM_TRY(const Buffer panels, put_half_test(device, half_panels(type, layout.bytes, integers)));
  DLLM_TRY(const Buffer count, put_half_test(device, std::vector<std::int32_t>{kHalfRows, 0, 0, 0}));
  DLLM_TRY(const Buffer halves, put_half_test(device, std::vector<std::uint32_t>(kHalfRows * half_words(kHalfWidth))));
  DLLM_TRY(const Buffer scales, put_half_test(device, std::vector<float>(kHalfRows)));
  DLLM_TRY(const Buffer out, put_half_test(device, std::vector<float>(kHalfRows * kHalfOutputs, std::nanf(""))));
  DeviceMatrix matrix{panels.address(), &format, layout, kHalfWidth, kHalfOutputs};
  matrix.half_exponent = 127 + (integers ? 3 : 0);
  const DeviceCodes rows{halves.address(), scales.address(), 0};
  DLLM_TRY(const Launch round, operators.halves(kHalfWidth, from.address(), rows));
  DLLM_TRY(const Launch product,
           operators.linear(matrix, from.address(), rows, 0, {count.address(), kHalfRows}, out.address()));
  DLLM_TRY(Commands commands, Commands::begin(device));
  commands.dispatch(*round.pipeline, round.push, round.groups(kHalfRows));
  commands.barrier();
  commands.dispatch(*product.pipeline, product.push, product.groups(kHalfRows));
  DLLM_CHECK_OK(commands.end());
  DLLM_CHECK_OK(commands.run("the self-test"));
  return std::vector<float>(out.as<float>(), out.as<float>() + kHalfRows * kHalfOutputs);
}

/// Whether all are what they should be.
bool halves_are_right(const std::vector<float>& seen, bool integers) {
  for (std::int64_t r = 0; r < kHalfRows; ++r)
    for (std::int64_t n = 0; n < kHalfOutputs; ++n) {
      double sum = 0, magnitude = 0;
      for (std::int64_t k = 0; k < kHalfWidth; ++k) {
        const double product =
            static_cast<double>(half_operand(static_cast<std::uint32_t>(r * kHalfWidth + k), 2, integers)) *
            static_cast<double>(half_operand(static_cast<std::uint32_t>(n * kHalfWidth + k), 1, integers));
        sum += product, magnitude += std::abs(product);
      }
      const double bound = integers ? 0 : static_cast<double>(kHalfWidth) * 0x1p-23 * magnitude;
      if (!(std::abs(static_cast<double>(seen[static_cast<std::size_t>(r * kHalfOutputs + n)]) - sum) <= bound))
        return false;
    }
  return true;
}

}  // namespace

Expected<void> test_halves(const std::shared_ptr<Device>& device, const Arithmetic& arithmetic) {
  const auto refused = [&](const std::string& what) {
    return Error{ErrorCode::kUnsupported, fmt::format("{} {}", device->facts().name, what), "--arithmetic",
                 "leave it out: exact runs on every device"};
  };
  if (!half_shape_of(device->facts()))
    return refused("has no matrix units for F16 that this build uses (VK_KHR_cooperative_matrix)");
  Arithmetic with = arithmetic;
  with.halves = true;
  Operators operators(device, with);
  for (const TensorType type : {TensorType::kF16, TensorType::kBF16})
    for (const bool integers : {true, false}) {
      // A driver that lists matrices need not compile them.
      const auto seen = half_products(operators, type, integers);
      if (!seen) return refused(fmt::format("does not run products in F16: {}", seen.error().what));
      if (!halves_are_right(*seen, integers))
        return refused(fmt::format("gives wrong products in F16 for {} weights", codec(type).name));
    }
  return {};
}

}  // namespace dllm::vulkan
