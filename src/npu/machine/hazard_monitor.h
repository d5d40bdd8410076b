#pragma once

#include <vector>

#include "npu/assembler/hazards.h"
#include "npu/machine/machine.h"

namespace dllm::npu {

/// Watches a run for uses of memory that a tagged transfer still owns: reading or writing what an H_PREFETCH_* with a
/// tag writes, or overwriting what an H_STORE_V with a tag reads, before a C_FENCE for that tag. Untagged transfers are
/// ordered by the hardware. Each pair of instructions is reported once.
class HazardMonitor final : public IssueObserver {
 public:
  void on_issue(const IssueEvent& event) override;
  const std::vector<Hazard>& hazards() const { return hazards_; }

 private:
  struct Outstanding {
    std::uint32_t index, tag;
    ResolvedAccesses accesses;
  };
  std::vector<Outstanding> outstanding_;
  std::vector<Hazard> hazards_;
};

}  // namespace dllm::npu
