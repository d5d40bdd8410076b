#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cpu/kernels/packed.h"
#include "dllm/error.h"
#include "vulkan/device.h"
#include "vulkan/self_test.h"

// Products with packed codes have three shaders with the same bits. Which one runs, and with what tiles, is decided here
// by what the device has and by the shape.

namespace dllm::vulkan {

enum class ProductShader : std::uint8_t {
  kCodes,     ///< linear_codes.comp: on every device
  kDots,      ///< linear_dots.comp: integer dot products
  kMatrices,  ///< linear_matrices.comp: cooperative matrices
};

/// A cooperative matrix operation whose accumulators this backend can read.
struct MatrixUnit {
  MatrixShape shape;
  std::uint32_t layout = 0;  ///< for shaders/linear_matrices.comp
};

/// The layout of accumulators: `places` has for [element][invocation] 16 m + n. Nothing unless every bit of an element's
/// and an invocation's number is one bit of the place.
std::optional<std::uint32_t> layout_of(const MatrixShape& shape, std::uint32_t subgroup,
                                       std::span<const std::int32_t> places);

/// The operations of a device that products can use; empty: none. Errors: kResource.
Expected<std::vector<MatrixUnit>> find_matrix_units(const std::shared_ptr<Device>& device,
                                                    const Arithmetic& arithmetic);

/// Rows of x that a product runs over, as a recording knows them.
enum class Pairing : std::uint32_t {
  kNone,      ///< all rows, with one matrix
  kEachPair,  ///< pairs of a row and an expert, each with its matrix
  kGrouped,   ///< pairs, those of an expert together
};

/// A shader with its tiles.
struct ProductPlan {
  ProductShader shader = ProductShader::kCodes;
  std::uint32_t rows = 8;       ///< of a workgroup
  std::uint32_t subgroups = 0;  ///< kMatrices: of a workgroup, each with a panel
  std::uint32_t chunk = 0;      ///< kMatrices: groups that are in shared memory at once
  std::uint32_t layout = 0;     ///< kMatrices: of accumulators
  std::string suffix;

  std::string name() const;
  /// Outputs of a workgroup.
  std::uint32_t outputs() const;
  /// Bytes of memory that a workgroup shares.
  std::int64_t shared_bytes(bool has_minimum) const;
};

/// Whether a plan can run a product on a device.
bool runs(const ProductPlan& plan, const cpu::PackedFormat& format, const DeviceFacts& facts);

/// The plan for at most `rows` rows of x and n outputs.
ProductPlan plan_product(const cpu::PackedFormat& format, std::int64_t n, std::int64_t rows, Pairing pairing,
                         const DeviceFacts& facts, std::span<const MatrixUnit> units);

}  // namespace dllm::vulkan
