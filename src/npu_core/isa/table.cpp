#include <algorithm>
#include <cctype>
#include <string>
#include <unordered_map>
#include <vector>

#include "npu_core/isa/isa.h"
#include "npu_core/isa/table_builder.h"

namespace dllm::npu {
namespace {

std::array<InstructionInfo, kOpCount> collect() {
  std::array<InstructionInfo, kOpCount> table{};
  for (const auto rows : {matrix_rows(), vector_rows(), scalar_rows(), transfer_and_control_rows()})
    for (const Row& row : rows) table[static_cast<std::size_t>(row.op)] = row;
  return table;
}

const std::array<InstructionInfo, kOpCount>& table() {
  static const std::array<InstructionInfo, kOpCount> rows = collect();
  return rows;
}

}  // namespace

std::span<const InstructionInfo> instruction_table() { return table(); }

const InstructionInfo& info(Op op) { return table()[static_cast<std::size_t>(op)]; }

std::span<const InstructionInfo* const> find_mnemonic(std::string_view mnemonic) {
  static const auto index = [] {
    std::unordered_map<std::string, std::vector<const InstructionInfo*>> map;
    for (const InstructionInfo& row : table()) {
      map[std::string(row.mnemonic)].push_back(&row);
      if (!row.alias.empty()) map[std::string(row.alias)].push_back(&row);
    }
    return map;
  }();
  std::string upper(mnemonic);
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const auto found = index.find(upper);
  if (found == index.end()) return {};
  return found->second;
}

std::string_view name_of(Class cls) {
  constexpr std::string_view names[] = {"matrix", "vector", "scalar", "HBM", "control", "sampling"};
  return names[static_cast<std::size_t>(cls)];
}

std::string_view name_of(Unit unit) {
  constexpr std::string_view names[] = {"matrix", "vector", "scalar_fp", "scalar_int", "load", "store", "control"};
  return names[static_cast<std::size_t>(unit)];
}

std::string_view name_of(Latency latency) {
  constexpr std::string_view names[] = {
      "matrix_tile", "matrix_heads", "matrix_vector", "write_out",  "matrix_flush", "vector_add",  "vector_mul",
      "vector_exp",  "vector_reci",  "vector_sum",    "vector_max", "vector_draw",  "vector_scan", "vector_shift",
      "hadamard",    "router_topk",  "topk_mask",     "select_int", "map_fp",       "scalar_fp",   "scalar_exp",
      "scalar_reci", "scalar_sqrt",  "scalar_int",    "hbm",        "control"};
  return names[static_cast<std::size_t>(latency)];
}

std::string_view name_of(Space space) {
  constexpr std::string_view names[] = {"VRAM", "MRAM",      "FP_MEM", "INT_MEM", "HBM",
                                        "acc",  "acc_heads", "accrow", "accrows"};
  return names[static_cast<std::size_t>(space)];
}

}  // namespace dllm::npu
