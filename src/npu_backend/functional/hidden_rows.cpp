#include "npu_backend/functional/hidden_rows.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <variant>

#include "npu_backend/functional/mixed_row.h"
#include "npu_core/machine/arithmetic.h"

namespace dllm::npu {
namespace {

/// Byte of a lane in rows as they are in vector SRAM.
std::uint64_t lane_address(const HiddenPlace& place, std::int64_t vlen, std::int64_t row, std::int64_t lane) {
  return place.address + 2 * static_cast<std::uint64_t>((lane / vlen * place.stride + row) * vlen + lane % vlen);
}

/// Calls body(plan, index into its rows) for each row of a part.
template <class Body>
void for_plan_rows(const StepSpec& spec, std::span<const SequenceStep> batch, const Body& body) {
  auto step = batch.begin();
  for (const SequenceSpec& s : spec.sequences) {
    while (step->plan.rows.empty()) ++step;
    for (const Position p : s.positions) {
      const auto at = std::ranges::lower_bound(step->plan.rows, p, {}, &PlanRow::position);
      body(step->plan, static_cast<std::size_t>(at - step->plan.rows.begin()));
    }
    ++step;
  }
}

/// What the plans give for each row of a part, from a column on.
std::vector<const float*> rows_of(const StepSpec& spec, std::span<const SequenceStep> batch, std::int64_t first) {
  std::vector<const float*> rows;
  for_plan_rows(spec, batch, [&](const StepPlan& plan, std::size_t row) {
    rows.push_back(plan.hidden.data() + row * (plan.hidden.size() / plan.rows.size()) + first);
  });
  return rows;
}

/// Embeddings that are mixtures of tokens, of the table in the device's memory; none for rows without one.
std::vector<std::vector<float>> mixtures_of(const StepPart& part, const HiddenPlace& place, const ModelLayout& layout,
                                            std::span<const SequenceStep> batch, const std::byte* hbm) {
  const op::Embed* embed = nullptr;
  for (const dllm::Op& any : part.graph.ops)
    if (const auto* o = std::get_if<op::Embed>(&any); o != nullptr && o->out == place.value) embed = o;
  const WeightPlace& table = *layout.find(embed->table, WeightUse::kTable);
  const LaneMap& lanes = layout.values[static_cast<std::size_t>(place.value)];
  const auto row_of = [&](TokenId token) {
    const std::byte* from =
        hbm + table.tensor.base + 2 * static_cast<std::uint64_t>(token * layout.slabs(table.out) * layout.machine.vlen);
    std::vector<float> row;
    for (std::int64_t c = 0; c < lanes.width; ++c) {
      Bf16 bits = 0;
      std::memcpy(&bits, from + 2 * table.out.lane(c), 2);
      row.push_back(lane_to_f32(layout.machine.lanes, bits));
    }
    return row;
  };
  std::vector<std::vector<float>> rows;
  for_plan_rows(part.spec, batch, [&](const StepPlan& plan, std::size_t row) {
    const auto found = std::ranges::find(plan.mixtures, static_cast<std::int32_t>(row), &RowMixture::row);
    rows.push_back(found == plan.mixtures.end() ? std::vector<float>() : mixed_row(*found, embed->scale, row_of));
  });
  return rows;
}

}  // namespace

void write_hidden(const SplitStep& step, const ModelLayout& layout, std::span<const SequenceStep> batch,
                  std::byte* hbm) {
  const std::int64_t vlen = layout.machine.vlen;
  for (const StepPart& part : step.parts)
    for (const HiddenPlace& place : part.step.hidden_in) {
      std::vector<std::vector<float>> mixed;
      std::vector<const float*> rows;  // null: zeros
      if (place.first == kMixture) {
        mixed = mixtures_of(part, place, layout, batch, hbm);
        for (const std::vector<float>& row : mixed) rows.push_back(row.empty() ? nullptr : row.data());
      } else {
        rows = rows_of(part.spec, batch, place.first);
      }
      const LaneMap& lanes = layout.values[static_cast<std::size_t>(place.value)];
      std::memset(hbm + place.address, 0, static_cast<std::size_t>(layout.slabs(lanes) * place.stride * vlen * 2));
      for (std::size_t r = 0; r < rows.size(); ++r)
        for (std::int64_t c = 0; c < lanes.width && rows[r] != nullptr; ++c) {
          const Bf16 bits = f32_to_lane(layout.machine.lanes, rows[r][c]);
          std::memcpy(hbm + lane_address(place, vlen, static_cast<std::int64_t>(r), lanes.lane(c)), &bits, 2);
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
