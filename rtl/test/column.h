#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dllm::rtl {

struct ColumnResult {
  std::uint64_t outputs = 0, wrong = 0;
  int cycles = 0;  ///< from the first term to the conversion of the last row, for one instruction; -1 if it varies
  std::string first;
};

/// A model of the column: formats of input and weights, rows, terms per instruction, terms per group.
struct ColumnModel {
  const char* name;
  const char* a;
  const char* w;
  int blen, klen, group;
};
const std::vector<ColumnModel>& column_models();

/// Random products of one to three instructions through model `index`; each row is compared with the machine's
/// accumulator.
ColumnResult check_column(std::size_t index, std::uint64_t outputs);

}  // namespace dllm::rtl
