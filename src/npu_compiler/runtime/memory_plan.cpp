#include "npu_compiler/runtime/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/human_bytes.h"
#include "base/integers.h"
#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/runtime/placement.h"
#include "npu_compiler/runtime/scratch.h"
#include "npu_compiler/runtime/staged_waits.h"
#include "npu_compiler/runtime/staging.h"

namespace dllm::npu {
namespace {

Expected<void> check_program(const MemoryProgram& program) {
  const auto bad = [](std::string what, const std::string& where) {
    return Error{ErrorCode::kUsage, std::move(what), where, ""};
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  for (const MemoryTensor& tensor : program.tensors)
    if (tensor.bytes < 1 || tensor.bytes > kMost || tensor.granule < 0)
      return bad(fmt::format("a size of {} bytes, in parts of {}", tensor.bytes, tensor.granule),
                 "tensor " + tensor.name);
  for (const MemoryOp& op : program.ops) {
    if (!(op.seconds >= 0) || std::isinf(op.seconds))
      return bad(fmt::format("a time of {} s", op.seconds), "operator " + op.name);
    for (const auto* list : {&op.reads, &op.writes})
      for (const std::int32_t t : *list)
        if (t < 0 || to_size(t) >= program.tensors.size())
          return bad(fmt::format("there is no tensor {}", t), "operator " + op.name);
  }
  return {};
}

Expected<void> check_limits(const MemoryLimits& limits) {
  const auto bad = [](std::string what) { return Error{ErrorCode::kUsage, std::move(what), "limits", ""}; };
  for (const std::int64_t size : {limits.window_bytes, limits.staging_bytes, limits.mapping_bytes, limits.mappings})
    if (size < 0) return bad(fmt::format("a limit of {}", size));
  if (limits.page_bytes < 1 || limits.alignment < 1 || limits.page_bytes % limits.alignment != 0)
    return bad(fmt::format("pages of {} bytes, aligned to {}", limits.page_bytes, limits.alignment));
  for (const double cost : {limits.map_us, limits.map_us_per_page, limits.copy_gbps})
    if (!(cost >= 0) || std::isinf(cost)) return bad(fmt::format("a cost of {}", cost));
  if (limits.window_bytes > 0 && limits.staging_bytes > limits.window_bytes)
    return bad("the staging buffer is larger than the window");
  return {};
}

/// The used tensors of a kind, by their first use.
std::vector<std::int32_t> by_first_use(const MemoryProgram& program, const std::vector<TensorLife>& used,
                                       bool lasting) {
  std::vector<std::int32_t> found;
  for (std::size_t t = 0; t < program.tensors.size(); ++t)
    if (program.tensors[t].lasting == lasting && used[t].first >= 0) found.push_back(static_cast<std::int32_t>(t));
  std::ranges::stable_sort(found, {}, [&](std::int32_t t) { return used[to_size(t)].first; });
  return found;
}

class Planner {
 public:
  Planner(const MemoryProgram& program, const MemoryLimits& limits)
      : program_(program), limits_(limits), used_(tensor_lives(program)) {
    plan_.places.resize(program.tensors.size());
    for (const MemoryOp& op : program.ops) plan_.compute_seconds += op.seconds;
  }

  Expected<MemoryPlan> plan() {
    const std::vector<std::int32_t> lasting = by_first_use(program_, used_, true);
    std::vector<char> staged(program_.tensors.size());
    DLLM_CHECK_OK(place_scratch());
    plan_.seconds = plan_.first_seconds = plan_.paging_seconds = plan_.compute_seconds;
    if (!pack_mappings(program_, lasting, room(0)).fits) {
      const std::int64_t slot = slot_bytes();
      const StagingTimeline timeline(program_, limits_, slot);
      DLLM_TRY(staged, choose_staged(program_, lasting, timeline, room(2 * slot)));
      plan_.slot_bytes = slot;
      if (slot > 0) map(2 * slot, MemoryMapping::kStaging);
      take_times(timeline, staged);
    }
    place_lasting(lasting, staged);
    return std::move(plan_);
  }

  /// No timeline: everything fits. `staged`: by tensor, spread_staged().
  Expected<void> spread(std::optional<StagingTimeline>& timeline, std::vector<char>& staged) {
    const std::vector<std::int32_t> lasting = by_first_use(program_, used_, true);
    DLLM_CHECK_OK(place_scratch());
    if (pack_mappings(program_, lasting, room(0)).fits) return {};
    timeline.emplace(program_, limits_, slot_bytes());
    DLLM_TRY(staged, spread_staged(program_, lasting, *timeline, room(2 * slot_bytes())));
    return {};
  }

 private:
  std::int64_t slot_bytes() const { return limits_.staging_bytes / 2 / limits_.page_bytes * limits_.page_bytes; }

  std::int64_t map(std::int64_t bytes, MemoryMapping::Use use) {
    const std::int64_t address = plan_.window_used();
    plan_.mappings.push_back({address, round_up(bytes, limits_.page_bytes), use});
    return address;
  }

  /// What remains of the window and of the mappings after scratch and `staging` bytes.
  ResidentRoom room(std::int64_t staging) const {
    ResidentRoom room{std::numeric_limits<std::int64_t>::max() / 2, limits_.mapping_bytes, 0, limits_.page_bytes,
                      limits_.alignment};
    if (limits_.window_bytes > 0)
      room.bytes = limits_.window_bytes / limits_.page_bytes * limits_.page_bytes - plan_.window_used() - staging;
    if (limits_.mappings > 0) {
      room.mappings = limits_.mappings - static_cast<std::int64_t>(plan_.mappings.size()) - (staging > 0 ? 1 : 0);
      if (room.mappings < 1) {
        room.mappings = 1;
        room.bytes = 0;
      }
    }
    return room;
  }

  Expected<void> place_scratch() {
    const std::vector<std::int32_t> passing = by_first_use(program_, used_, false);
    std::vector<LiveBuffer> buffers;
    for (const std::int32_t t : passing) {
      const TensorLife& used = used_[to_size(t)];
      buffers.push_back({program_.tensors[to_size(t)].bytes, used.first, used.last});
    }
    const ScratchPlan scratch = share_scratch(buffers, limits_.alignment);
    plan_.scratch_bytes = scratch.bytes;
    if (scratch.bytes == 0) return {};
    const std::int64_t bytes = round_up(scratch.bytes, limits_.page_bytes);
    const auto text = [](std::int64_t size) { return human_bytes(static_cast<double>(size)); };
    for (const auto& [limit, name] :
         {std::pair{limits_.window_bytes, "window"}, {limits_.mapping_bytes, "largest mapping"}})
      if (limit > 0 && bytes > limit)
        return Error{ErrorCode::kResource,
                     fmt::format("activations take {} at once, the {} has {}", text(bytes), name, text(limit)),
                     "the window of addresses", "run fewer rows"};
    const std::int64_t address = map(scratch.bytes, MemoryMapping::kScratch);
    for (std::size_t i = 0; i < passing.size(); ++i)
      plan_.places[to_size(passing[i])] = {TensorPlace::kScratch, address + scratch.offsets[i], 0};
    return {};
  }

  void take_times(const StagingTimeline& timeline, const std::vector<char>& staged) {
    const StagingTimeline::Times times = timeline.run(staged, &plan_.parts);
    plan_.seconds = times.seconds;
    plan_.first_seconds = times.first;
    plan_.transfer_seconds = times.transfer;
    plan_.waiting_seconds = std::max(0.0, times.seconds - plan_.compute_seconds);
    for (const StagedPart& part : plan_.parts) plan_.staged_bytes += part.bytes;
    for (std::size_t t = 0; t < staged.size(); ++t)
      if (timeline.can_stage(t)) plan_.paging_seconds += timeline.transfer_seconds(t);
  }

  void place_lasting(const std::vector<std::int32_t>& lasting, const std::vector<char>& staged) {
    std::vector<std::int32_t> resident;
    for (const std::int32_t t : lasting)
      if (staged[to_size(t)])
        plan_.places[to_size(t)].kind = TensorPlace::kStaged;
      else
        resident.push_back(t);
    const PackedMappings packed = pack_mappings(program_, resident, room(0));
    std::vector<std::int64_t> address;
    const auto first = static_cast<std::int32_t>(plan_.mappings.size());
    for (const std::int64_t bytes : packed.bytes) address.push_back(map(bytes, MemoryMapping::kResident));
    for (std::size_t i = 0; i < resident.size(); ++i) {
      const PackedMappings::Place& place = packed.places[i];
      plan_.places[to_size(resident[i])] = {TensorPlace::kResident, address[to_size(place.mapping)] + place.offset,
                                            first + place.mapping};
      plan_.resident_bytes += program_.tensors[to_size(resident[i])].bytes;
    }
  }

  const MemoryProgram& program_;
  const MemoryLimits& limits_;
  std::vector<TensorLife> used_;
  MemoryPlan plan_;
};

}  // namespace

std::vector<TensorLife> tensor_lives(const MemoryProgram& program) {
  std::vector<TensorLife> lives(program.tensors.size());
  for (std::size_t o = 0; o < program.ops.size(); ++o)
    for (const auto* list : {&program.ops[o].reads, &program.ops[o].writes})
      for (const std::int32_t t : *list) {
        TensorLife& life = lives[to_size(t)];
        life.last = static_cast<std::int32_t>(o);
        if (life.first < 0) life.first = life.last;
      }
  return lives;
}

std::int64_t MemoryPlan::window_used() const {
  return mappings.empty() ? 0 : mappings.back().address + mappings.back().bytes;
}

Expected<MemoryPlan> plan_memory(const MemoryProgram& program, const MemoryLimits& limits) {
  DLLM_CHECK_OK(check_program(program));
  DLLM_CHECK_OK(check_limits(limits));
  return Planner(program, limits).plan();
}

struct StagedWaits::State {
  MemoryProgram program;
  MemoryLimits limits;
  std::optional<StagingTimeline> timeline = {};  ///< of `program`; none: everything fits
  std::vector<char> staged = {};
};

StagedWaits::StagedWaits(std::unique_ptr<State> state) : state_(std::move(state)) {}
StagedWaits::StagedWaits(StagedWaits&&) noexcept = default;
StagedWaits& StagedWaits::operator=(StagedWaits&&) noexcept = default;
StagedWaits::~StagedWaits() = default;

Expected<StagedWaits> StagedWaits::create(MemoryProgram program, const MemoryLimits& limits) {
  DLLM_CHECK_OK(check_program(program));
  DLLM_CHECK_OK(check_limits(limits));
  std::unique_ptr<State> state(new State{std::move(program), limits});
  DLLM_CHECK_OK(Planner(state->program, state->limits).spread(state->timeline, state->staged));
  return StagedWaits(std::move(state));
}

Expected<double> StagedWaits::waiting(std::span<const double> seconds, bool search) {
  std::vector<MemoryOp>& ops = state_->program.ops;
  if (seconds.size() != ops.size())
    return Error{ErrorCode::kUsage, fmt::format("{} times of {} operators", seconds.size(), ops.size()), "plan", ""};
  double compute = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) compute += ops[i].seconds = seconds[i];
  if (!state_->timeline) return 0.0;
  const double spread = state_->timeline->run(state_->staged).seconds;
  if (spread <= compute * (1 + 1e-12)) return 0.0;  // the sums have rounding errors
  if (!search) return spread - compute;
  DLLM_TRY(const MemoryPlan plan, plan_memory(state_->program, state_->limits));
  return plan.waiting_seconds;
}

}  // namespace dllm::npu
