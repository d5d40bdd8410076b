#include "vulkan/product.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/try.h"
#include "vulkan/commands.h"

namespace dllm::vulkan {
namespace {

struct MatrixLayoutPush {
  VkDeviceAddress places;
};

/// Invocations of a subgroup of linear_matrices.comp.
constexpr std::uint32_t matrix_subgroup(ShaderForm form) { return form >= ShaderForm::kFloat64 ? 8 : 32; }

Expected<std::optional<std::uint32_t>> find_layout(const std::shared_ptr<Device>& device,
                                                   const Arithmetic& arithmetic) {
  const DeviceFacts& facts = device->facts();
  const MatrixShape shape = matrix_shape(arithmetic.form);
  // The shaders of cooperative matrices have products near subnormal numbers by float64 (CMakeLists.txt).
  if (!facts.has_float64 || facts.subgroup != matrix_subgroup(arithmetic.form) ||
      std::ranges::count(facts.matrices, shape) == 0)
    return std::optional<std::uint32_t>();
  PipelineConstants constants = arithmetic.constants();
  constants[9] = constants[10] = facts.subgroup;
  constants[11] = shape.m;
  constants[12] = shape.n;
  const auto pipeline = Pipeline::make(device, "matrix_layout", arithmetic.form, constants);
  if (!pipeline) return std::optional<std::uint32_t>();  // a driver that lists matrices need not compile them
  const std::int64_t count = std::int64_t{shape.m} * shape.n;
  DLLM_TRY(const Buffer places, Buffer::make(device, count * 4, Place::kShared, "the self-test"));
  DLLM_TRY(Commands commands, Commands::begin(device));
  commands.dispatch(*pipeline, MatrixLayoutPush{places.address()}, GroupCounts{1});
  DLLM_CHECK_OK(commands.end());
  DLLM_CHECK_OK(commands.run("the self-test"));
  return layout_of(shape, facts.subgroup, {places.as<const std::int32_t>(), static_cast<std::size_t>(count)});
}

}  // namespace

std::optional<std::uint32_t> layout_of(const MatrixShape& shape, std::uint32_t subgroup,
                                       std::span<const std::int32_t> places) {
  const auto count = static_cast<std::uint32_t>(places.size());
  if (count != shape.m * shape.n || !std::has_single_bit(count) || !std::has_single_bit(subgroup)) return std::nullopt;
  std::uint32_t layout = 0, shift = 0, rows_of_lane = 1;
  bool of_output = false;
  for (std::uint32_t bit = 1; bit < count; bit *= 2, shift += 4) {
    const auto place = static_cast<std::uint32_t>(places[bit]);
    if (!std::has_single_bit(place) || place > 128) return std::nullopt;
    if (bit >= subgroup && std::exchange(of_output, place >= 16) && place < 16) return std::nullopt;
    if (bit >= subgroup && place < 16) rows_of_lane *= 2;
    layout |= static_cast<std::uint32_t>(std::countr_zero(place)) << shift;
  }
  // The shader keeps a scale for each row of an invocation: two of 16, one of 8.
  if (rows_of_lane != shape.m / 8) return std::nullopt;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint32_t place = 0;
    for (std::uint32_t bit = 1; bit < count; bit *= 2)
      if ((i & bit) != 0) place |= static_cast<std::uint32_t>(places[bit]);
    if (static_cast<std::uint32_t>(places[i]) != place) return std::nullopt;
  }
  return layout;
}

std::string half_product(const MatrixShape& shape, std::uint32_t rows) {
  return fmt::format("linear_halves_m{}n{}k{}r{}", shape.m, shape.n, shape.k, rows);
}

std::optional<MatrixShape> half_shape_of(const DeviceFacts& facts) {
  // As scripts/matrix_shaders.py builds them; the last one is that of Mesa's driver for processors.
  constexpr std::pair<MatrixShape, std::uint32_t> kBuilt[] = {{{16, 8, 16}, 32}, {{16, 16, 16}, 32}, {{8, 8, 8}, 8}};
  for (const auto& [shape, subgroup] : kBuilt)
    if (facts.subgroup == subgroup && std::ranges::count(facts.half_matrices, shape) != 0) return shape;
  return std::nullopt;
}

std::string product_module(const cpu::PackedFormat& format) {
  const std::string_view minimum = format.has_min ? "_minimum" : "";
  if (format.group != 32) return "";
  switch (format.codes) {
    case cpu::Codes::kNibble:
      return fmt::format("product_nibble{}", minimum);
    case cpu::Codes::kNibble5:
      return fmt::format("product_five{}", minimum);
    case cpu::Codes::kByte:
      return format.has_min ? "" : "product_byte";
    case cpu::Codes::kE2M1:
    case cpu::Codes::kIq4:
      return format.has_min ? "" : "product_table";
    default:
      return "";
  }
}

Expected<ProductUnits> find_product_units(const std::shared_ptr<Device>& device, const Arithmetic& arithmetic) {
  ProductUnits units{device->facts(), arithmetic.form, {}, arithmetic.kernels, half_shape_of(device->facts())};
  DLLM_TRY(units.layout, find_layout(device, arithmetic));
  return units;
}

std::string ProductPlan::name() const {
  if (shader == ProductShader::kCodes) return "linear_codes";
  if (shader == ProductShader::kDots) return "linear_dots";
  if (shader == ProductShader::kKernel) return fmt::format("product_{}", kProductKernels[kernel].name);
  return fmt::format("linear_matrices_r{}s{}c{}", rows, subgroups, chunk);
}

std::uint32_t ProductPlan::outputs() const {
  if (shader == ProductShader::kCodes) return 64;
  if (shader == ProductShader::kKernel) return kProductKernels[kernel].panels * 16;
  return shader == ProductShader::kDots ? 16 : subgroups * 16;
}

std::int64_t ProductPlan::shared_bytes(bool has_minimum) const {
  const std::int64_t minimum = has_minimum ? 1 : 0, flag = 4;
  if (shader == ProductShader::kCodes) return 0;
  if (shader == ProductShader::kDots) return 16 * (rows * 16 * 8 + minimum * (16 * 4 + rows * 4)) + flag;
  const std::int64_t row = 32 * chunk + 16 + chunk * 4 * (1 + minimum);
  return outputs() * row + rows * (row + chunk * 4) + flag;
}

bool runs(const ProductPlan& plan, const cpu::PackedFormat& format, const ProductUnits& units) {
  if (plan.shader == ProductShader::kKernel) return units.kernels && !product_module(format).empty();
  const std::string name = plan.name();
  const auto built = [&](const Shader& one) { return one.name == name && one.form == units.form; };
  if (std::ranges::none_of(shaders(), built) || plan.shared_bytes(format.has_min) > units.facts.most_shared)
    return false;
  if (plan.shader == ProductShader::kDots) return units.facts.has_dots && plan.rows <= 16;
  return plan.shader == ProductShader::kCodes || (units.layout.has_value() && format.group == 32);
}

ProductPlan plan_product(const cpu::PackedFormat& format, std::int64_t n, std::int64_t rows, bool each_pair,
                         const ProductUnits& units) {
  ProductPlan plan;
  if (each_pair) plan.rows = 1;
  if (ProductPlan kernel{ProductShader::kKernel}; runs(kernel, format, units)) {
    // Measured on an H200 (research/lab): two panels give small matrices enough blocks.
    constexpr std::int64_t kSmall = 8192;
    kernel.kernel = each_pair ? kPairsKernel : rows <= 8 ? 0 : n <= kSmall ? 1 : 2;
    kernel.rows = kProductKernels[kernel.kernel].rows;
    return kernel;
  }
  // Measured on Mesa's driver for processors: its dot products and matrices are loops, and slower.
  if (units.facts.type == VK_PHYSICAL_DEVICE_TYPE_CPU) return plan;
  const std::int64_t most = each_pair ? 1 : rows;
  if (most > 1) {
    // Measured on an H200 (research/lab): small matrices need small workgroups, so that all of its processors have one,
    // and long chunks, so that each of these asks for enough memory at once. From some tiles of rows on, occupancy
    // counts.
    constexpr std::int64_t kSmall = 8192, kManyRows = 64;
    ProductPlan matrices{ProductShader::kMatrices, most <= 8 ? 8U : 32U, 2, 16, units.layout.value_or(0)};
    if (most <= 8 && n > kSmall) matrices.subgroups = 4, matrices.chunk = 8;
    if (most > 8 && (n > kSmall || most >= kManyRows)) matrices.chunk = 8;
    if (runs(matrices, format, units)) return matrices;
  }
  ProductPlan dots{ProductShader::kDots, 1};
  while (dots.rows < 8 && dots.rows < most) dots.rows *= 2;
  return runs(dots, format, units) ? dots : plan;
}

}  // namespace dllm::vulkan
