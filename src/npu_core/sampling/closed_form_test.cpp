#include "npu_core/sampling/closed_form.h"
#include "npu_core/device/profile.h"
#include "npu_core/sampling/testing/published_forms.h"

#include <gtest/gtest.h>

namespace dllm::npu {
namespace {

Device device_with(std::int64_t vlen) {
  Device device = *load_device("dart-2048");
  device.array.vlen = vlen;
  return device;
}

/// d-PLENA Table III, and its implications for the other widths (research/lab/npu-sampling.md).
TEST(Sampling, PublishedSerialFigures) {
  const SamplingLoad load;  // B = 16, L = 32, V' = 126,976, T = 1
  struct Row {
    std::int64_t vlen, vector, scalar, prefetches, bytes;
  };
  for (const Row& row : {Row{2048, 477696, 117412, 7940, 67077120}, Row{1024, 953856, 228516, 15876, 69092352},
                         Row{512, 1906176, 450724, 31748, 73147392}}) {
    const test::SerialSampling s = test::serial_sampling(device_with(row.vlen), load);
    EXPECT_EQ(s.vector, row.vector);
    EXPECT_EQ(s.scalar, row.scalar);
    EXPECT_EQ(s.prefetches, row.prefetches);
    EXPECT_EQ(s.bytes, row.bytes);
    EXPECT_EQ(s.control + s.hidden, 548);
  }
}

TEST(Sampling, LowerBounds) {
  SamplingLoad load;
  load.vocab = 126464;
  Device device = device_with(2048);
  SamplingBounds bounds = sampling_bounds(device, load);
  EXPECT_NEAR(bounds.memory, 81500, 100);  // block 32: 81.5 us at 819.2 GB/s and 1 GHz
  EXPECT_NEAR(bounds.pipelined, 127000, 100);
  EXPECT_NEAR(bounds.chained, 63500, 100);
  EXPECT_DOUBLE_EQ(bounds.bound(), bounds.memory);
  device.numerics.logits = "mxfp8_e4m3:8:plena";
  EXPECT_NEAR(sampling_bounds(device, load).memory, 88900, 100);
}

TEST(Sampling, SramEquations) {
  SamplingLoad load;
  const SamplingSram whole = sampling_sram(device_with(2048), load);
  EXPECT_EQ(whole.integer, 4096);
  EXPECT_EQ(whole.fp, 4096);
  EXPECT_EQ(whole.vector, (1536 + 4063232) * 2);
  load.chunk = 4096;
  EXPECT_EQ(sampling_sram(device_with(2048), load).vector, (1536 + 4096) * 2);
}

/// Linear in B, T and V, and a knee in Vchunk (d-PLENA Figure 5, DART Figure 7).
TEST(Sampling, EdgeModeShapes) {
  const Device device = device_with(64);
  SamplingLoad load{.batch = 2, .block = 64, .vocab = 2048, .steps = 1, .chunk = 128, .preload = 1};
  const auto cycles = [&](bool grow) { return test::edge_sampling_cycles(device, load, 45, grow, 200); };
  const double base = cycles(false);
  load.batch = 32;
  EXPECT_NEAR(cycles(false), 16 * base, 1e-6 * base);
  load = {.batch = 2, .block = 64, .vocab = 2048, .steps = 8, .chunk = 128, .preload = 1};
  EXPECT_NEAR(cycles(false), 8 * base, 1e-6 * base);
  load = {.batch = 2, .block = 64, .vocab = 131072, .steps = 1, .chunk = 128, .preload = 1};
  EXPECT_NEAR(cycles(false), 64 * base, 0.02 * 64 * base);
  load.vocab = 128000;
  EXPECT_NEAR(cycles(false) * 1e-6, 18.7, 0.2);  // ms at 1 GHz
  load.chunk = 4096;
  EXPECT_NEAR(cycles(false) * 1e-6, 10.9, 0.4);
  EXPECT_NEAR(cycles(true) * 1e-6, 5.2, 0.3);
}

}  // namespace
}  // namespace dllm::npu
