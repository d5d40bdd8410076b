// Which shader multiplies, and what it needs to know of a device.
#include "vulkan/product.h"

#include <gtest/gtest.h>

#include <vector>

namespace dllm::vulkan {
namespace {

/// The accumulator of 16 x 8 of NVIDIA's cards, as an H200 gave it: invocation 4 g + t has outputs g and g + 8 of the
/// rows 2 t and 2 t + 1.
std::vector<std::int32_t> places_of_a_card() {
  std::vector<std::int32_t> places;
  for (int e = 0; e < 4; ++e)
    for (int lane = 0; lane < 32; ++lane) places.push_back((lane / 4 + e / 2 * 8) * 16 + lane % 4 * 2 + e % 2);
  return places;
}

ProductUnits card() {
  ProductUnits units;
  units.facts.type = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
  units.facts.subgroup = 32;
  units.facts.most_shared = 49152;
  units.facts.has_dots = true;
  units.form = ShaderForm::kGuarded;
  units.layout = 0x07065421;
  return units;
}

const cpu::PackedFormat& format_of(TensorType type) { return *cpu::packed_format(type); }

TEST(LayoutOf, ReadsWhatACardHas) {
  EXPECT_EQ(layout_of({16, 8, 32}, 32, places_of_a_card()), 0x07065421U);
  // Mesa's driver for processors: rows by invocation, outputs by element.
  std::vector<std::int32_t> processor;
  for (int e = 0; e < 8; ++e)
    for (int lane = 0; lane < 8; ++lane) processor.push_back(16 * e + lane);
  EXPECT_EQ(layout_of({8, 8, 8}, 8, processor), 0x654210U);
}

TEST(LayoutOf, RefusesWhatTheShaderCannotRead) {
  auto places = places_of_a_card();
  std::swap(places[5], places[6]);
  EXPECT_FALSE(layout_of({16, 8, 32}, 32, places));
  EXPECT_FALSE(layout_of({16, 16, 32}, 32, places_of_a_card()));
  EXPECT_FALSE(layout_of({16, 8, 32}, 32, std::vector<std::int32_t>(128)));
  // Outputs before rows among the elements.
  std::vector<std::int32_t> turned;
  for (int e = 0; e < 4; ++e)
    for (int lane = 0; lane < 32; ++lane) turned.push_back((lane / 4 + e % 2 * 8) * 16 + lane % 4 * 2 + e / 2);
  EXPECT_FALSE(layout_of({16, 8, 32}, 32, turned));
  // All rows by invocation, or two bits of them by element: the shader keeps scales for two rows of an invocation.
  std::vector<std::int32_t> lanes, elements;
  for (int e = 0; e < 4; ++e)
    for (int lane = 0; lane < 32; ++lane) {
      lanes.push_back((lane / 8 + e * 4) * 16 + lane % 8);
      elements.push_back(lane / 2 * 16 + lane % 2 * 4 + e);
    }
  EXPECT_FALSE(layout_of({16, 8, 32}, 32, lanes));
  EXPECT_FALSE(layout_of({16, 8, 32}, 32, elements));
}

TEST(PlanProduct, TakesMatricesWhereTheDeviceHasThem) {
  const auto name = [](TensorType type, std::int64_t n, std::int64_t rows, const ProductUnits& units) {
    return plan_product(format_of(type), n, rows, false, units).name();
  };
  EXPECT_EQ(name(TensorType::kQ4_0, 4096, 32, card()), "linear_matrices_r32s2c16");
  EXPECT_EQ(name(TensorType::kQ8_0, 12288, 32, card()), "linear_matrices_r32s2c8");
  EXPECT_EQ(name(TensorType::kQ4_0, 4096, 256, card()), "linear_matrices_r32s2c8");
  EXPECT_EQ(name(TensorType::kQ4_K, 4096, 8, card()), "linear_matrices_r8s2c16");
  EXPECT_EQ(name(TensorType::kQ4_0, 126464, 5, card()), "linear_matrices_r8s4c8");
  // One row fills no matrix; groups of 16 fill none.
  EXPECT_EQ(name(TensorType::kQ4_0, 4096, 1, card()), "linear_dots");
  EXPECT_EQ(name(TensorType::kQ6_K, 4096, 32, card()), "linear_dots");
}

TEST(PlanProduct, FallsBackByWhatTheDeviceLacks) {
  const auto plan = [](const ProductUnits& units) {
    return plan_product(format_of(TensorType::kQ4_0), 4096, 32, false, units);
  };
  ProductUnits units = card();
  units.layout.reset();
  EXPECT_EQ(plan(units).name(), "linear_dots");
  EXPECT_EQ(plan(units).rows, 8U);
  units.facts.has_dots = false;
  EXPECT_EQ(plan(units).name(), "linear_codes");
  units = card();
  units.facts.most_shared = 16384;
  EXPECT_EQ(plan(units).name(), "linear_codes");
  units.facts.most_shared = 32768;
  EXPECT_EQ(plan(units).name(), "linear_dots");
  units = card();
  units.facts.type = VK_PHYSICAL_DEVICE_TYPE_CPU;
  EXPECT_EQ(plan(units).name(), "linear_codes");
}

TEST(PlanProduct, GivesAPairOneRow) {
  const ProductPlan plan = plan_product(format_of(TensorType::kQ8_0), 1024, 32, true, card());
  EXPECT_EQ(plan.name(), "linear_dots");
  EXPECT_EQ(plan.rows, 1U);
  ProductUnits without = card();
  without.facts.has_dots = false;
  EXPECT_EQ(plan_product(format_of(TensorType::kQ8_0), 1024, 32, true, without).rows, 1U);
}

}  // namespace
}  // namespace dllm::vulkan
