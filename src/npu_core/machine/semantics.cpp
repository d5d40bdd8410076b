#include "npu_core/machine/semantics.h"

namespace dllm::npu {

const std::array<Execute, kOpCount>& semantics() {
  static const std::array<Execute, kOpCount> table = [] {
    std::array<Execute, kOpCount> all{};
    for (const std::span<const Semantics> list :
         {matrix_semantics(), vector_semantics(), reduction_semantics(), permutation_semantics(), selection_semantics(),
          scalar_semantics(), transfer_semantics()})
      for (const Semantics& one : list) all[static_cast<std::size_t>(one.op)] = one.execute;
    return all;
  }();
  return table;
}

}  // namespace dllm::npu
