// The kernels of cuda/ against the shaders in whose place they run.
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/try.h"
#include "cpu/kernels/packed.h"
#include "vulkan/operators.h"
#include "vulkan/self_test.h"

namespace dllm::vulkan {
namespace {

constexpr std::int64_t kRows = 11, kWidth = 608, kOutputs = 40;  // no whole chunks, tiles or panels

/// Numbers of a model's size, of every exponent, and zeros.
std::vector<float> numbers(std::int64_t count, std::uint32_t seed) {
  std::vector<float> all;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t random = philox4x32({i, seed, 0, 0}, {38, 0})[0];
    // Sums stay finite: what a NaN looks like is nobody's promise.
    const std::uint32_t exponent = i % 64 < 48 ? 120 + random % 9 : i % 64 < 56 ? random % 160 : 0;
    all.push_back(std::bit_cast<float>((random & 0x807f'ffffU) | exponent << 23));
  }
  return all;
}

/// Memory for a case, the same for shaders and kernels.
struct Bench {
  Buffer x, y, panels, values, scales, sums, count, result;
  DeviceCodes codes() const { return {values.address(), scales.address(), sums.address()}; }
  std::vector<std::byte> all() const {
    std::vector<std::byte> bytes;
    for (const Buffer* const buffer : {&values, &scales, &sums, &result})
      bytes.insert(bytes.end(), buffer->data(), buffer->data() + buffer->bytes());
    return bytes;
  }
};

Expected<Bench> make_bench(const std::shared_ptr<Device>& device, std::int64_t panel_bytes) {
  const auto room = [&](std::int64_t bytes) { return Buffer::make(device, bytes, Place::kShared, "the self-test"); };
  Bench bench;
  const std::int64_t count = kRows * kWidth;
  DLLM_TRY(bench.x, room(count * 4));
  DLLM_TRY(bench.y, room(count * 4));
  DLLM_TRY(bench.panels, room(panel_bytes));
  DLLM_TRY(bench.values, room(count));
  DLLM_TRY(bench.scales, room(count / 8));
  DLLM_TRY(bench.sums, room(count / 4));
  DLLM_TRY(bench.count, room(16));
  DLLM_TRY(bench.result, room(count * 4));
  std::memcpy(bench.x.data(), numbers(count, 1).data(), static_cast<std::size_t>(count * 4));
  std::memcpy(bench.y.data(), numbers(count, 2).data(), static_cast<std::size_t>(count * 4));
  *bench.count.as<std::int32_t>() = static_cast<std::int32_t>(kRows);
  return bench;
}

/// A kind of case: what it dispatches, and whether that writes codes or the result.
struct Case {
  std::string name;
  std::function<Expected<Launch>(Operators& operators, const Bench& bench)> launch;
  bool codes = false;
};

/// Codes of every value, and scales between 2^-14 and 2.
void fill_panels(const Bench& bench, const cpu::PackedLayout& layout, bool floats) {
  const std::int64_t bytes = bench.panels.bytes();
  for (std::int64_t i = 0; i < bytes / 4; ++i) {
    const std::uint32_t random = philox4x32({static_cast<std::uint32_t>(i), 3, 0, 0}, {38, 0})[0];
    bench.panels.as<std::uint32_t>()[i] = floats ? (random & 0x81ff'ffffU) | 0x3c00'0000U : random;
  }
  if (floats) return;
  for (std::int64_t panel = 0; panel < bytes / layout.bytes; ++panel)
    for (std::int64_t i = 0; i < kWidth / 32 * 16; ++i) {
      auto* const at = reinterpret_cast<std::uint16_t*>(bench.panels.data() + panel * layout.bytes + layout.scale) + i;
      *at = static_cast<std::uint16_t>((*at & 0xbfffU) | 0x0400U);
    }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const bool exact : {false, true})
    all.push_back({"quantize",
                   [=](Operators& operators, const Bench& bench) {
                     return operators.quantize(kWidth, exact, bench.x.address(), bench.codes());
                   },
                   true});
  all.push_back({"rms_norm", [](Operators& operators, const Bench& bench) {
                   return operators.rms_norm({0, 0, 1e-5f, 1, 1}, kWidth, bench.x.address(), bench.y.address(),
                                             bench.result.address());
                 }});
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh})
    all.push_back({"glu", [=](Operators& operators, const Bench& bench) {
                     return operators.glu({0, 1, 2, activation}, kWidth, bench.x.address(), bench.y.address(),
                                          bench.result.address());
                   }});
  return all;
}

Case product_case(TensorType type) {
  return {"a product", [type](Operators& operators, const Bench& bench) {
            const cpu::PackedFormat* const format = cpu::packed_format(type);
            const DeviceMatrix matrix{bench.panels.address(), format, cpu::packed_layout(*format, kWidth), kWidth,
                                      kOutputs};
            return operators.linear(matrix, bench.x.address(), bench.codes(), 0, {bench.count.address(), kRows},
                                    bench.result.address());
          }};
}

Expected<std::vector<std::byte>> run(Operators& operators, const Bench& bench, const Case& one) {
  for (const Buffer* const written :
       one.codes ? std::vector{&bench.values, &bench.scales, &bench.sums} : std::vector{&bench.result})
    std::memset(written->data(), 0x55, static_cast<std::size_t>(written->bytes()));
  DLLM_TRY(const Launch launch, one.launch(operators, bench));
  DLLM_TRY(Commands commands, Commands::begin(operators.device()));
  commands.dispatch(*launch.pipeline, launch.push, launch.groups(kRows));
  DLLM_CHECK_OK(commands.end());
  DLLM_CHECK_OK(commands.run("the self-test"));
  return bench.all();
}

}  // namespace

Expected<void> test_kernels(const std::shared_ptr<Device>& device, Arithmetic& arithmetic) {
  arithmetic.kernels = false;
  if (device->cuda_calls() == nullptr) return {};
  Arithmetic with = arithmetic;
  with.kernels = true;
  Operators shaders(device, arithmetic), kernels(device, with);
  std::vector<Case> all = cases();
  for (const TensorType type : {TensorType::kQ4_0, TensorType::kF32}) {
    const cpu::PackedFormat& format = *cpu::packed_format(type);
    const cpu::PackedLayout layout = cpu::packed_layout(format, kWidth);
    DLLM_TRY(const Bench bench, make_bench(device, (kOutputs + 15) / 16 * layout.bytes));
    fill_panels(bench, layout, cpu::packs_floats(format));
    all.push_back(product_case(type));  // of packed codes: it reads those that the cases before it have made
    for (const Case& one : all) {
      DLLM_TRY(const std::vector<std::byte> right, run(shaders, bench, one));
      // A driver that lists the extension need not take this PTX.
      const auto seen = run(kernels, bench, one);
      if (!seen) arithmetic.kernels_fault = seen.error().what;
      if (seen && *seen != right) arithmetic.kernels_fault = fmt::format("{} differs", one.name);
      if (!arithmetic.kernels_fault.empty()) return {};
    }
    all.clear();
  }
  arithmetic.kernels = true;
  return {};
}

}  // namespace dllm::vulkan
