#pragma once

#include <string>

namespace dllm::npu {

/// What the number formats of a device cost in cells, at the nominal clock and supply: a processing element, and the
/// converters between formats in memory, in vector SRAM and at the array.
struct FormatCosts {
  double pe_um2 = 0, pe_ns = 0;        ///< a multiply-accumulate of the array and its longest path
  double mac_ratio = 1;                ///< its energy, relative to one of 8 by 4 bits
  double input_um2 = 0, input_pj = 0;  ///< a lane's value to the array's input format
  double store_um2 = 0, store_pj = 0;  ///< a lane's value to the format in memory
  double load_um2 = 0;                 ///< an element from memory to a lane's value
  double unpack_um2 = 0;               ///< a packed weight to the lanes' format
  double matrix_bytes = 0;             ///< of an element in matrix SRAM, which holds weights, keys and values
};

/// Formats by their names ([numerics]); those that the machine does not know count as float16.
FormatCosts format_costs(const std::string& weight, const std::string& activation, const std::string& kv);

}  // namespace dllm::npu
