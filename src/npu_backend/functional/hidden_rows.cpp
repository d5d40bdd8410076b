#include "npu_backend/functional/hidden_rows.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "npu_core/machine/arithmetic.h"

namespace dllm::npu {
namespace {

/// Byte of a lane in rows as they are in vector SRAM.
std::uint64_t lane_address(const HiddenPlace& place, std::int64_t vlen, std::int64_t row, std::int64_t lane) {
  return place.address + 2 * static_cast<std::uint64_t>((lane / vlen * place.stride + row) * vlen + lane % vlen);
}

/// What the plans give for each row of a part.
std::vector<const float*> rows_of(const StepSpec& spec, std::span<const SequenceStep> batch) {
  std::vector<const float*> rows;
  auto step = batch.begin();
  for (const SequenceSpec& s : spec.sequences) {
    while (step->plan.rows.empty()) ++step;
    const std::vector<PlanRow>& plan = step->plan.rows;
    const std::size_t columns = step->plan.hidden.size() / plan.size();
    for (const Position p : s.positions) {
      const auto at = std::ranges::lower_bound(plan, p, {}, &PlanRow::position);
      rows.push_back(step->plan.hidden.data() + static_cast<std::size_t>(at - plan.begin()) * columns);
    }
    ++step;
  }
  return rows;
}

}  // namespace

void write_hidden(const SplitStep& step, const ModelLayout& layout, std::span<const SequenceStep> batch,
                  std::byte* hbm) {
  const std::int64_t vlen = layout.machine.vlen;
  for (const StepPart& part : step.parts) {
    if (part.step.hidden_in.empty()) continue;
    const std::vector<const float*> rows = rows_of(part.spec, batch);
    for (const HiddenPlace& place : part.step.hidden_in) {
      const LaneMap& lanes = layout.values[static_cast<std::size_t>(place.value)];
      std::memset(hbm + place.address, 0, static_cast<std::size_t>(layout.slabs(lanes) * place.stride * vlen * 2));
      for (std::size_t r = 0; r < rows.size(); ++r)
        for (std::int64_t c = 0; c < lanes.width; ++c) {
          const Bf16 bits = f32_to_lane(layout.machine.lanes, rows[r][place.first + c]);
          std::memcpy(hbm + lane_address(place, vlen, static_cast<std::int64_t>(r), lanes.lane(c)), &bits, 2);
        }
    }
  }
}

std::vector<float> read_hidden(const SplitStep& step, const ModelLayout& layout, const std::byte* hbm) {
  std::int64_t columns = 0;
  std::map<std::int64_t, std::int64_t> done;  // rows, by first column: parts follow each other
  std::vector<float> hidden;
  for (const StepPart& part : step.parts) columns = std::max(columns, hidden_width(part.graph));
  for (const StepPart& part : step.parts)
    for (const HiddenPlace& place : part.step.hidden_out) {
      const LaneMap& lanes = layout.values[static_cast<std::size_t>(place.value)];
      const std::int64_t first = done[place.first], count = part.graph.value(place.value).rows;
      hidden.resize(std::max(hidden.size(), static_cast<std::size_t>((first + count) * columns)));
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t c = 0; c < lanes.width; ++c) {
          Bf16 bits = 0;
          std::memcpy(&bits, hbm + lane_address(place, layout.machine.vlen, r, lanes.lane(c)), 2);
          hidden[static_cast<std::size_t>((first + r) * columns + place.first + c)] =
              lane_to_f32(layout.machine.lanes, bits);
        }
      done[place.first] += count;
    }
  return hidden;
}

}  // namespace dllm::npu
