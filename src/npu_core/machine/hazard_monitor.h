#pragma once

#include <vector>

#include "npu_core/assembler/hazards.h"
#include "npu_core/machine/machine.h"

namespace dllm::npu {

/// Detects accesses to memory that a tagged transfer still uses: reading or writing the target of an H_PREFETCH_* with
/// a tag, or overwriting the source of an H_STORE_V with a tag, before a C_FENCE for that tag. The hardware orders
/// untagged transfers. Each pair of instructions is reported once.
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
