#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "npu_core/assembler/assembler.h"
#include "npu_core/machine/machine.h"

namespace dllm::npu::test {

/// Assembly that loads a general register.
inline std::string set(const std::string& reg, std::uint32_t value) {
  return "li " + reg + ", " + std::to_string(value) + "\n";
}

/// A machine with memories to fill and read, for tests.
class Lab {
 public:
  explicit Lab(const MachineConfig& config) : machine_(*Machine::create(config)) {}

  static MachineConfig small() {
    MachineConfig config;
    config.blen = 4;
    config.mlen = 16;
    config.vlen = 32;
    config.hlen = 8;
    config.vram_elements = 32 * 256;
    config.mram_elements = 16 * 16 * 8;
    config.fp_words = config.int_words = 256;
    config.hbm_bytes = 1 << 20;
    config.prefetch_v_rows = 1;
    config.store_v_rows = 1;
    for (MxFormat* format : {&config.weight, &config.matrix_kv, &config.vector_kv, &config.matrix_input})
      *format = {MxElement::kInt8, MxRule::kOcp, 8};
    return config;
  }

  MachineState& state() { return machine_.state(); }
  Machine& machine() { return machine_; }

  /// Assembles and runs; a failure of either fails the test.
  RunResult run(const std::string& source) {
    const auto program = assemble(source, {.file = "test.asm", .half_scalars = lanes() == LaneFormat::kF16});
    EXPECT_TRUE(program.has_value()) << (program ? "" : program.error().message());
    if (!program) return {};
    const auto result = machine_.run(*program);
    EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message());
    return result ? *result : RunResult{};
  }

  /// The message of the trap; "" if there was none.
  std::string trap(const std::string& source) {
    const auto program = assemble(source, {.file = "test.asm", .half_scalars = lanes() == LaneFormat::kF16});
    EXPECT_TRUE(program.has_value()) << (program ? "" : program.error().message());
    if (!program) return {};
    const auto result = machine_.run(*program);
    return result ? "" : result.error().message();
  }

  void set_row(std::uint64_t address, const std::vector<float>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) state().vram[address + i] = f32_to_lane(lanes(), values[i]);
  }
  std::vector<float> row(std::uint64_t address, std::size_t n) {
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = lane_to_f32(lanes(), state().vram[address + i]);
    return values;
  }

  /// A tensor in HBM: elements at `base`, followed by the scales. Returns the matching SCALE_REG.
  std::uint32_t put_tensor(std::uint64_t base, const MxFormat& format, const std::vector<float>& values) {
    std::vector<std::uint16_t> codes(values.size());
    std::vector<std::uint8_t> scales(format.scale_bytes(values.size()));
    mx_quantize(format, values.data(), values.size(), codes.data(), scales.data());
    mx_pack(format.bits(), codes.data(), codes.size(), state().hbm.data() + base);
    const std::size_t offset = format.element_bytes(values.size());
    if (!scales.empty()) std::memcpy(state().hbm.data() + base + offset, scales.data(), scales.size());
    return static_cast<std::uint32_t>(offset);
  }
  std::vector<float> get_tensor(std::uint64_t base, std::uint32_t scale_offset, const MxFormat& format, std::size_t n) {
    std::vector<std::uint16_t> codes(n);
    std::vector<std::uint8_t> scales(format.scale_bytes(n));
    std::vector<float> values(n);
    mx_unpack(format.bits(), state().hbm.data() + base, n, codes.data());
    if (!scales.empty()) std::memcpy(scales.data(), state().hbm.data() + base + scale_offset, scales.size());
    mx_dequantize(format, codes.data(), scales.data(), n, values.data());
    return values;
  }

 private:
  LaneFormat lanes() { return state().config.lanes; }

  Machine machine_;
};

/// The values after rounding to a format.
inline std::vector<float> through(const MxFormat& format, const std::vector<float>& values) {
  std::vector<std::uint16_t> codes(values.size());
  std::vector<std::uint8_t> scales(format.scale_bytes(values.size()));
  std::vector<float> result(values.size());
  mx_quantize(format, values.data(), values.size(), codes.data(), scales.data());
  mx_dequantize(format, codes.data(), scales.data(), values.size(), result.data());
  return result;
}

inline float bf16_round(double value) { return bf16_to_f32(f64_to_bf16(value)); }

/// BF16 normals, reproducible.
inline std::vector<float> normals(std::size_t n, unsigned seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = bf16_to_f32(f32_to_bf16(normal(random) * scale));
  return values;
}

}  // namespace dllm::npu::test
