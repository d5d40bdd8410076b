#include "vulkan/pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <variant>

#include "base/try.h"
#include "cpu/linear.h"
#include "cpu/model_memory.h"
#include "vulkan/pass_recorder.h"

namespace dllm::vulkan {
namespace {

/// Logits of a part: few enough for the device's cache, and enough that its product fills a card.
constexpr std::int64_t kPartLogits = std::int64_t{1} << 19, kPartChunks = 16;

/// The longest row of a product.
std::int64_t longest_row(const Graph& graph) {
  std::int64_t k = 0;
  const auto longest = [&](ValueId x) { k = std::max(k, graph.value(x).width); };
  for (const Op& op : graph.ops) {
    if (const auto* linear = std::get_if<op::Linear>(&op)) longest(linear->x);
    if (const auto* head = std::get_if<op::ScoreHead>(&op)) longest(head->x);
    if (const auto* experts = std::get_if<op::Experts>(&op)) longest(experts->x);
  }
  return k;
}

/// Bytes of such a row as int8: codes, scales and sums.
std::int64_t code_bytes_of(const Graph& graph) {
  const std::int64_t k = longest_row(graph);
  // A multiple of 64, so that both parts of Pass::codes_ are aligned to what shaders load.
  return (k + k / 32 * 4 + k / 16 * 4 + 63) / 64 * 64;
}

/// Of a pass in a row: what is reduced, and a token for each scored row. A multiple of what shaders load.
std::int64_t kept_bytes(std::int64_t reduced, std::int64_t scored) { return (reduced + scored * 4 + 63) / 64 * 64; }

/// The largest sizes of what experts need, of any layer.
struct ExpertSizes {
  explicit ExpertSizes(const Graph& graph) {
    const auto width = [&](ValueId id) { return graph.value(id).width; };
    for (const Op& op : graph.ops) {
      if (const auto* route = std::get_if<op::Route>(&op)) experts = std::max(experts, width(route->logits));
      if (const auto* o = std::get_if<op::Experts>(&op)) {
        used = std::max(used, width(o->route) / 2);
        inner = std::max(inner, graph.weight(o->gate).shape[1]);
        outer = std::max(outer, width(o->out));
      }
    }
  }
  std::int64_t experts = 0, used = 0, inner = 0, outer = 0;
};

}  // namespace

Expected<void> Pass::make_scratch(const std::shared_ptr<Device>& device, bool halves) {
  const ExpertSizes sizes(plan_.graph);
  const std::int64_t pairs = room_.rows * sizes.used;
  std::int64_t end = 0;
  const auto section = [&](std::int64_t bytes) { return std::exchange(end, end + (bytes + 63) / 64 * 64); };
  const std::int64_t scores = section(room_.rows * sizes.experts * 4), keys = section(room_.rows * sizes.experts * 4);
  const std::int64_t gate = section(pairs * sizes.inner * 4), up = section(pairs * sizes.inner * 4);
  const std::int64_t down = section(pairs * sizes.outer * 4), values = section(pairs * sizes.inner);
  const std::int64_t scales = section(pairs * sizes.inner / 8), sums = section(pairs * sizes.inner / 4);
  const std::int64_t half_rows = section(halves ? pairs * half_words(sizes.inner) * 4 : 0);
  const std::int64_t half_scales = section(halves ? pairs * 4 : 0);
  if (end == 0) return {};
  DLLM_TRY(experts_, Buffer::make(device, end, Place::kDevice, "a pass's experts"));
  const auto at = [&](std::int64_t offset) { return experts_.address() + static_cast<VkDeviceAddress>(offset); };
  scratch_ = {{at(scores), at(keys)},
              at(gate),
              at(up),
              at(down),
              {at(values), at(scales), at(sums)},
              {at(half_rows), at(half_scales), 0}};
  return {};
}

std::int64_t Pass::reduced_bytes() const { return room_.scored * (head_.chunks * kChunkBytes + cpu::kMostAsked * 4); }

Expected<void> Pass::make_head(const std::shared_ptr<Device>& device, std::int32_t passes) {
  head_.vocab = head_vocab(plan_.graph);
  if (head_.vocab == 0) return {};
  head_.chunks = (head_.vocab + cpu::kHeadChunk - 1) / cpu::kHeadChunk;
  const std::int64_t fit = kPartLogits / cpu::kHeadChunk / std::max<std::int64_t>(1, room_.scored);
  head_.tokens = std::min(head_.chunks, std::clamp<std::int64_t>(fit, 1, kPartChunks)) * cpu::kHeadChunk;
  DLLM_TRY(parts_, Buffer::make(device, 2 * room_.scored * head_.tokens * 4, Place::kDevice, "a pass's activations"));
  DLLM_TRY(reduced_,
           Buffer::make(device, reduced_bytes(), passes > 1 ? Place::kDevice : Place::kShared, "a pass's scores"));
  if (passes > 1) {
    DLLM_TRY(candidates_, Buffer::make(device, room_.scored * kCandidateBytes, Place::kDevice, "a pass's scores"));
    // Batches of more rows run one pass at a time: they need no more room than passes in a row of smaller ones.
    const std::int64_t some = passes * static_cast<std::int64_t>(kMostUnrolledRows) / room_.scored;
    most_passes_ = static_cast<std::int32_t>(std::clamp<std::int64_t>(some, 1, passes));
    DLLM_TRY(kept_, Buffer::make(device, most_passes_ * kept_bytes(reduced_bytes(), room_.scored), Place::kShared,
                                 "the scores of passes in a row"));
  }
  if (room_.kept == 0) return {};
  DLLM_TRY(logits_, Buffer::make(device, room_.kept * head_.vocab * 4, Place::kShared, "a pass's logits"));
  return {};
}

const std::byte* Pass::reduced(std::int32_t pass) const {
  return kept_.bytes() == 0 ? reduced_.data() : kept_.data() + pass * kept_bytes(reduced_bytes(), room_.scored);
}

std::span<const cpu::ReducedChunk> Pass::chunks(std::int32_t pass) const {
  return {reinterpret_cast<const cpu::ReducedChunk*>(reduced(pass)),
          static_cast<std::size_t>(room_.scored * head_.chunks)};
}

std::span<const float> Pass::answers(std::int32_t pass) const {
  return {reinterpret_cast<const float*>(reduced(pass) + room_.scored * head_.chunks * kChunkBytes),
          static_cast<std::size_t>(room_.scored * cpu::kMostAsked)};
}

std::span<const std::int32_t> Pass::committed(std::int32_t pass) const {
  return {reinterpret_cast<const std::int32_t*>(reduced(pass) + reduced_bytes()),
          static_cast<std::size_t>(room_.scored)};
}

MostRows most_rows(const Graph& graph, const DeviceFacts& facts) {
  const std::int64_t groups = facts.most_groups;
  return {groups / std::max<std::int64_t>(1, ExpertSizes(graph).used), groups};
}

Expected<std::unique_ptr<Pass>> Pass::record(const DeviceModel& model, Graph graph, const PassSize& room, bool timed) {
  const std::shared_ptr<Device>& device = model.operators->device();
  const MostRows most = most_rows(graph, device->facts());
  if (room.rows > most.rows || room.stored > most.stored)
    return Error{ErrorCode::kResource,
                 fmt::format("a pass has {} rows and stores {}; {} runs at most {} and {} in one pass", room.rows,
                             room.stored, device->facts().name, most.rows, most.stored),
                 "--backend vulkan", "use a shorter prompt or fewer requests at a time"};
  std::unique_ptr<Pass> pass(new Pass);
  pass->room_ = room;
  pass->tables_ = model.tables;
  pass->plan_ = make_plan(std::move(graph));
  const Graph& planned = pass->plan_.graph;
  // At most those of experts: two products with codes of their rows, a gate, a transform, codes, a product, a sum.
  // The head has three for each part.
  // Passes in a row have two more, and one for each table.
  const auto launches =
      static_cast<std::int64_t>(9 * planned.ops.size()) + 3 * (head_vocab(planned) / cpu::kHeadChunk + 1) + 4;
  const std::int32_t passes = model.unrolling != nullptr ? model.unrolling->passes : 1;
  if (timed) {
    DLLM_TRY(pass->times_, Timestamps::make(device, static_cast<std::uint32_t>(launches + 1)));
  }
  DLLM_TRY(pass->arguments_, PassArguments::make(device, planned, *model.tables, room, launches, passes > 1));
  DLLM_TRY(pass->arena_, Buffer::make(device, pass->plan_.arena_floats * 4, Place::kDevice, "a pass's activations"));
  DLLM_TRY(pass->codes_,
           Buffer::make(device, 2 * room.rows * code_bytes_of(planned), Place::kDevice, "a pass's activations"));
  const bool halves = model.operators->arithmetic().halves;
  if (halves) {
    const std::int64_t row = half_words(longest_row(planned)) * 4 + 4;
    DLLM_TRY(pass->halves_, Buffer::make(device, room.rows * row, Place::kDevice, "a pass's activations"));
  }
  DLLM_CHECK_OK(pass->make_scratch(device, halves));
  DLLM_CHECK_OK(pass->make_head(device, passes));
  if (const std::int64_t columns = hidden_width(planned); columns > 0) {
    DLLM_TRY(pass->hidden_, Buffer::make(device, room.rows * columns * 4, Place::kShared, "a pass's hidden states"));
  }
  DLLM_TRY(Commands commands, Commands::begin(device, passes > 1));
  pass->commands_ = std::make_unique<Commands>(std::move(commands));
  if (passes > 1) pass->commands_->between_passes();
  pass->arguments_.record(*pass->commands_);
  DLLM_CHECK_OK(Recorder(model, *pass, *pass->commands_).record_all());
  if (timed) pass->commands_->stamp(*pass->times_, static_cast<std::uint32_t>(pass->stamped_.size()));
  DLLM_CHECK_OK(pass->commands_->end());
  return pass;
}

Expected<std::vector<std::pair<std::string_view, double>>> Pass::shader_times() const {
  std::vector<std::pair<std::string_view, double>> all;
  if (!times_) return all;
  DLLM_TRY(const std::vector<double> noted, times_->read(static_cast<std::uint32_t>(stamped_.size() + 1)));
  for (std::size_t i = 0; i < stamped_.size(); ++i) all.emplace_back(stamped_[i], (noted[i + 1] - noted[i]) * 1e-9);
  return all;
}

void Pass::hand_out(std::span<const SequenceStep> batch, std::vector<Scores>& scores) const {
  if (!hands_out()) return;
  const float* rows = hidden_.as<const float>();
  for (std::size_t s = 0; s < batch.size(); ++s) {
    const float* const end = rows + batch[s].plan.row_count() * hidden_width(plan_.graph);
    if (batch[s].request.hidden) scores[s].hidden.assign(rows, end);
    rows = end;
  }
}

std::int64_t Pass::bytes() const {
  return arguments_.bytes() + arena_.bytes() + codes_.bytes() + halves_.bytes() + experts_.bytes() + parts_.bytes() +
         reduced_.bytes() + logits_.bytes() + hidden_.bytes() + candidates_.bytes() + kept_.bytes();
}

Expected<void> Pass::run(std::span<const SequenceStep> batch, const ScoredRows& scored, const BranchRows& shared,
                         const UnrollBatch& unrolled) {
  const PassSize size = arguments_.fill(batch, scored, *tables_, shared);
  const std::int64_t counts[] = {size.rows, size.scored, size.kept, size.stored};
  for (std::size_t i = 0; i < launches_.size(); ++i)
    arguments_.set_groups(
        static_cast<std::int64_t>(i),
        launches_[i].launch.groups(counts[static_cast<std::size_t>(launches_[i].over)] * launches_[i].pairs));
  if (kept_.bytes() > 0) arguments_.fill_unrolling(batch, unrolled, launches());
  return commands_->run("a pass", unrolled.passes);
}

}  // namespace dllm::vulkan
