#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cpu/kernels/packed.h"
#include "dllm/error.h"
#include "vulkan/device.h"
#include "vulkan/self_test.h"
#include "vulkan/shaders.h"

// Products with packed codes have three shaders with the same bits. Which one runs, and with what tiles, is decided
// here by what the device has and by the shape.

namespace dllm::vulkan {

enum class ProductShader : std::uint8_t {
  kCodes,     ///< linear_codes.comp: on every device
  kDots,      ///< linear_dots.comp: integer dot products
  kMatrices,  ///< matrices/linear_matrices.comp: cooperative matrices
  kKernel,    ///< cuda/product.cu
};

/// A shader with its tiles.
struct ProductPlan {
  ProductShader shader = ProductShader::kCodes;
  std::uint32_t rows = 8;       ///< of a workgroup
  std::uint32_t subgroups = 0;  ///< kMatrices: of a workgroup, each with a panel
  std::uint32_t chunk = 0;      ///< kMatrices: groups that are in shared memory at once
  std::uint32_t layout = 0;     ///< kMatrices: of accumulators
  std::uint32_t kernel = 0;     ///< kKernel: index in kProductKernels

  /// Of the shader or kernel: "linear_matrices_r32s2c8", "product_r32p4".
  std::string name() const;
  /// Outputs of a workgroup.
  std::uint32_t outputs() const;
  /// Bytes of memory that a workgroup shares.
  std::int64_t shared_bytes(bool has_minimum) const;
};

/// A shape of cuda/product.cu.
struct ProductKernel {
  std::string_view name;
  std::uint32_t rows = 0;    ///< of a block
  std::uint32_t panels = 0;  ///< of a block
  std::uint32_t threads = 0;
};
inline constexpr ProductKernel kProductKernels[] = {
    {"r8p4", 8, 4, 128}, {"r32p2", 32, 2, 128}, {"r32p4", 32, 4, 256}, {"r32w2", 32, 4, 64}, {"pairs", 8, 4, 128},
};
/// The one for op::Experts: a block takes all pairs of an expert.
inline constexpr std::uint32_t kPairsKernel = 4;
/// The module of cuda/product.cu that has a format's kernels; empty: none has.
std::string product_module(const cpu::PackedFormat& format);

/// What products can use of a device.
struct ProductUnits {
  DeviceFacts facts;
  ShaderForm form = ShaderForm::kFloat64;
  std::optional<std::uint32_t> layout;      ///< of the accumulators of linear_matrices.comp; nothing: it cannot run
  bool kernels = false;                     ///< those of cuda/ run and have passed the self-test
  std::optional<MatrixShape> half_shape{};  ///< of the operation for products in F16; nothing: they cannot run
};

/// The cooperative matrix operation that linear_matrices.comp has in a form.
constexpr MatrixShape matrix_shape(ShaderForm form) {
  return form >= ShaderForm::kFloat64 ? MatrixShape{8, 8, 8} : MatrixShape{16, 8, 32};
}

/// The shader of products in F16, with a tile of so many rows: "linear_halves_m16n8k16r32".
std::string half_product(const MatrixShape& shape, std::uint32_t rows);
/// The shape of its operation that a device has, the first of those that are built; nothing: it has none, or subgroups
/// of another size.
std::optional<MatrixShape> half_shape_of(const DeviceFacts& facts);

/// The layout of accumulators: `places` has for [element][invocation] 16 m + n. Nothing unless every bit of an
/// element's and an invocation's number is one bit of the place, and rows come before outputs among an element's bits.
std::optional<std::uint32_t> layout_of(const MatrixShape& shape, std::uint32_t subgroup,
                                       std::span<const std::int32_t> places);

/// Looks at a device. Errors: kResource.
Expected<ProductUnits> find_product_units(const std::shared_ptr<Device>& device, const Arithmetic& arithmetic);

/// Whether a plan can run a product: the device has what it needs, and this build the shader.
bool runs(const ProductPlan& plan, const cpu::PackedFormat& format, const ProductUnits& units);

/// The plan for at most `rows` rows of x and n outputs; `each_pair`: every row has a matrix of its own.
ProductPlan plan_product(const cpu::PackedFormat& format, std::int64_t n, std::int64_t rows, bool each_pair,
                         const ProductUnits& units);

}  // namespace dllm::vulkan
