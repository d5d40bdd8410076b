#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"

namespace dllm {

/// An array from a NumPy file. Every supported type fits into double exactly, except 64-bit integers beyond 2^53.
struct NpyArray {
  std::vector<std::size_t> shape;
  std::vector<double> values;  ///< row-major
};

/// Reads format 1.0 to 3.0: little-endian f2, f4, f8, i1-i8, u1-u8, bool, C order.
/// Errors: kInvalidFile (damaged), kUnsupported (other types, Fortran order).
Expected<NpyArray> parse_npy(std::string_view bytes, const std::string& name);

/// A file of one dimension: "<f4" or "<u4".
std::string npy_of(const std::vector<float>& values);
std::string npy_of(const std::vector<std::uint32_t>& values);

}  // namespace dllm
