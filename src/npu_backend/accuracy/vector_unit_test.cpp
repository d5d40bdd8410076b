#include "npu_backend/accuracy/vector_unit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "npu_core/machine/arithmetic.h"

namespace dllm::npu::accuracy {
namespace {

/// The machine's lanes in FP16, bit for bit; NaNs have no payload here.
void expect_same(float simulated, Bf16 lane) {
  if (std::isnan(simulated)) {
    EXPECT_TRUE(std::isnan(f16_to_f32(lane)));
    return;
  }
  EXPECT_EQ(f32_to_f16(simulated), lane);
  EXPECT_EQ(f16_to_f32(lane), simulated);
}

TEST(VectorUnit, HalfPrecisionIsTheMachinesForEveryArgument) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto lane = static_cast<Bf16>(bits);
    const float x = f16_to_f32(lane);
    expect_same(vector_exp(VectorPrecision::kF16, x), f16_exp(lane));
    expect_same(vector_reciprocal(VectorPrecision::kF16, x), f16_reciprocal(lane));
    expect_same(vector_sqrt(VectorPrecision::kF16, x), f16_sqrt(lane));
  }
}

TEST(VectorUnit, HalfPrecisionPairs) {
  std::mt19937 random(3);
  for (int i = 0; i < 200000; ++i) {
    const auto a = static_cast<Bf16>(random()), b = static_cast<Bf16>(random());
    const float x = f16_to_f32(a), y = f16_to_f32(b);
    expect_same(round_to(VectorPrecision::kF16, x + y), f16_add(a, b));
    expect_same(round_to(VectorPrecision::kF16, x - y), f16_sub(a, b));
    expect_same(round_to(VectorPrecision::kF16, x * y), f16_mul(a, b));
  }
}

}  // namespace
}  // namespace dllm::npu::accuracy
