#include "npu_core/machine/hazard_monitor.h"

#include <fmt/format.h>

#include <algorithm>

namespace dllm::npu {
namespace {

bool writes(Access access) { return access == Access::kWrite || access == Access::kReadWrite; }

/// Compares bounding intervals: two interleaved column blocks count as overlapping, as they do for row-valid
/// bits.
bool conflict(const MemoryRange& a, const MemoryRange& b) {
  if (a.space != b.space || a.total() == 0 || b.total() == 0) return false;
  if (!writes(a.access) && !writes(b.access)) return false;
  return a.base < b.end() && b.base < a.end();
}

bool conflict(const ResolvedAccesses& a, const ResolvedAccesses& b) {
  for (int i = 0; i < a.count; ++i)
    for (int j = 0; j < b.count; ++j)
      if (conflict(a[i], b[j])) return true;
  return false;
}

}  // namespace

void HazardMonitor::on_issue(const IssueEvent& event) {
  const std::uint32_t tag = event.instruction->get(Field::kTag);
  if (event.instruction->op == Op::C_FENCE) {
    std::erase_if(outstanding_, [tag](const Outstanding& o) { return tag == 0 || o.tag == tag; });
    return;
  }
  const bool transfer = event.info->cls == Class::kHbm;
  for (const Outstanding& o : outstanding_) {
    if (transfer && o.tag == tag) continue;  // transfers with the same tag stay in order
    if (!conflict(o.accesses, *event.accesses)) continue;
    Hazard hazard{event.index,
                  fmt::format("touches what instruction {} still transfers: no C_FENCE {} in between", o.index, o.tag)};
    const auto same = [&hazard](const Hazard& other) {
      return other.index == hazard.index && other.what == hazard.what;
    };
    if (std::ranges::none_of(hazards_, same)) hazards_.push_back(std::move(hazard));
  }
  if (transfer && tag != 0) outstanding_.push_back({event.index, tag, *event.accesses});
}

}  // namespace dllm::npu
