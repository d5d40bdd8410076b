#include "vulkan/product.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/try.h"
#include "vulkan/commands.h"

namespace dllm::vulkan {
namespace {

struct MatrixLayoutPush {
  VkDeviceAddress places, codes;
};

/// The operation that shaders/matrices/linear_matrices.comp has in a form.
constexpr MatrixShape shape_of(ShaderForm form) {
  return form == ShaderForm::kFloat64 ? MatrixShape{8, 8, 8} : MatrixShape{16, 8, 32};
}
constexpr std::uint32_t subgroup_of(ShaderForm form) { return form == ShaderForm::kFloat64 ? 8 : 32; }

}  // namespace

std::optional<std::uint32_t> layout_of(const MatrixShape& shape, std::uint32_t subgroup,
                                       std::span<const std::int32_t> places) {
  const auto count = static_cast<std::uint32_t>(places.size());
  if (count != shape.m * shape.n || !std::has_single_bit(count) || !std::has_single_bit(subgroup)) return std::nullopt;
  std::uint32_t layout = 0, shift = 0;
  for (std::uint32_t bit = 1; bit < count; bit *= 2, shift += 4) {
    const auto place = static_cast<std::uint32_t>(places[bit]);
    if (!std::has_single_bit(place) || place > 128) return std::nullopt;
    layout |= static_cast<std::uint32_t>(std::countr_zero(place)) << shift;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint32_t place = 0;
    for (std::uint32_t bit = 1; bit < count; bit *= 2)
      if ((i & bit) != 0) place |= static_cast<std::uint32_t>(places[bit]);
    if (static_cast<std::uint32_t>(places[i]) != place) return std::nullopt;
  }
  return layout;
}

Expected<std::vector<MatrixUnit>> find_matrix_units(const std::shared_ptr<Device>& device,
                                                    const Arithmetic& arithmetic) {
  const DeviceFacts& facts = device->facts();
  std::vector<MatrixUnit> units;
  for (const MatrixShape& shape : facts.matrices) {
    if (shape != shape_of(arithmetic.form) || facts.subgroup != subgroup_of(arithmetic.form)) continue;
    PipelineConstants constants = arithmetic.constants();
    constants[9] = constants[10] = facts.subgroup;
    constants[11] = shape.m;
    constants[12] = shape.n;
    constants[13] = shape.k;
    DLLM_TRY(const Pipeline pipeline, Pipeline::make(device, "matrix_layout", arithmetic.form, constants));
    const std::int64_t count = std::int64_t{shape.m} * shape.n;
    DLLM_TRY(const Buffer places, Buffer::make(device, count * 4, Place::kShared, "the self-test"));
    DLLM_TRY(const Buffer codes,
             Buffer::make(device, std::int64_t{shape.m} * shape.k * 4, Place::kShared, "the self-test"));
    DLLM_TRY(Commands commands, Commands::begin(device));
    commands.dispatch(pipeline, MatrixLayoutPush{places.address(), codes.address()}, GroupCounts{1});
    DLLM_CHECK_OK(commands.end());
    DLLM_CHECK_OK(commands.run("the self-test"));
    const auto layout =
        layout_of(shape, facts.subgroup, {places.as<const std::int32_t>(), static_cast<std::size_t>(count)});
    if (layout) units.push_back({shape, *layout});
  }
  return units;
}

std::string ProductPlan::name() const {
  switch (shader) {
    case ProductShader::kDots:
      return "linear_dots";
    case ProductShader::kMatrices:
      return fmt::format("linear_matrices_r{}s{}c{}{}", rows, subgroups, chunk, suffix);
    default:
      return "linear_codes";
  }
}

std::uint32_t ProductPlan::outputs() const {
  return shader == ProductShader::kCodes ? 64 : shader == ProductShader::kDots ? 16 : subgroups * 16;
}

std::int64_t ProductPlan::shared_bytes(bool has_minimum) const {
  const std::int64_t minimum = has_minimum ? 1 : 0;
  if (shader == ProductShader::kDots) return 16 * (rows * 16 * 8 + minimum * (16 * 4 + rows * 4));
  if (shader != ProductShader::kMatrices) return 0;
  const std::int64_t row = 32 * chunk + 16 + chunk * 4 * (1 + minimum);
  return outputs() * row + rows * (row + chunk * 4);
}

bool runs(const ProductPlan& plan, const cpu::PackedFormat& format, const DeviceFacts& facts) {
  if (plan.shared_bytes(format.has_min) > facts.most_shared) return false;
  if (plan.shader == ProductShader::kDots) return facts.has_dots && plan.rows <= 16;
  return plan.shader != ProductShader::kMatrices || format.group == 32;
}

ProductPlan plan_product(const cpu::PackedFormat& format, std::int64_t n, std::int64_t rows, Pairing pairing,
                         const DeviceFacts& facts, std::span<const MatrixUnit> units) {
  ProductPlan plan;
  if (pairing == Pairing::kEachPair) plan.rows = 1;
  const std::int64_t most = pairing == Pairing::kEachPair ? 1 : rows;
  if (most > 1 && !units.empty()) {
    ProductPlan matrices{ProductShader::kMatrices, 8, 4, 8, units[0].layout, ""};
    while (matrices.rows < 32 && matrices.rows < most) matrices.rows *= 2;
    // Fewer outputs for small matrices, so that all of a device's units have work.
    if (n <= 8192) matrices.subgroups = 2, matrices.chunk = 16;
    if (runs(matrices, format, facts)) return matrices;
  }
  ProductPlan dots{ProductShader::kDots, 1, 0, 0, 0, ""};
  while (dots.rows < 8 && dots.rows < most) dots.rows *= 2;
  return runs(dots, format, facts) ? dots : plan;
}

}  // namespace dllm::vulkan
