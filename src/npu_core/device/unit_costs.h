#pragma once

namespace dllm::npu {

/// A unit of rtl/ in the cells of ASAP7, without wires: area, longest path, energy of a cycle with random inputs.
struct UnitCost {
  double um2, ns, pj;
};

namespace unit_costs {
#define DLLM_UNIT(name, um2, ns, pj) inline constexpr UnitCost name = {um2, ns, pj};
#include "npu_core/device/unit_costs.def"
#undef DLLM_UNIT
}  // namespace unit_costs

}  // namespace dllm::npu
