#include "npu_core/machine/choice_source.h"

#include <algorithm>

namespace dllm::npu {

std::optional<std::uint32_t> ChoiceSource::lane(std::uint32_t instruction) {
  const auto site = std::ranges::lower_bound(choices_.sites, instruction, {}, &ChoiceSite::instruction);
  if (site == choices_.sites.end() || site->instruction != instruction) return std::nullopt;
  const std::uint32_t limit = choices_.assumption.lanes;
  // A row's choices differ, so there are never fewer lanes than choices.
  const std::uint32_t lanes = limit == 0 ? site->lanes : std::clamp(limit, site->count, site->lanes);
  if (rows_.size() <= site->slot) rows_.resize(site->slot + 1);
  Row& row = rows_[site->slot];
  if (site->first) {
    row.base = next_;
    row.chosen.clear();
    next_ = (next_ + site->count) % lanes;
  }
  std::uint32_t lane = (row.base + static_cast<std::uint32_t>(row.chosen.size())) % lanes;
  if (!choices_.assumption.balanced) {
    do {
      lane = static_cast<std::uint32_t>(random_() % lanes);
    } while (std::ranges::find(row.chosen, lane) != row.chosen.end());
  }
  row.chosen.push_back(lane);
  // Wraps if an earlier row has the lane: the instruction adds `before` again, from its register.
  return lane - site->before;
}

}  // namespace dllm::npu
