#include "vulkan/pass_arguments.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <variant>

#include "backend/lead.h"
#include "base/to_size.h"
#include "base/try.h"
#include "cpu/embedding.h"
#include "vulkan/kv_cache.h"
#include "vulkan/weights.h"

namespace dllm::vulkan {
namespace {

/// Counts and workgroups share the first bytes; sections begin at lines of the cache.
constexpr std::int64_t kSection = 64;
/// Of what passes in a row read: where the sequences begin, and where the rows do.
constexpr std::int64_t kUnrollSequences = kSection,
                       kUnrollRows = kUnrollSequences +
                                     static_cast<std::int64_t>(kMostUnrolledSequences * sizeof(UnrollSequence));

std::int64_t rounded(std::int64_t bytes) { return (bytes + kSection - 1) / kSection * kSection; }

}  // namespace

PassSize size_of_pass(std::span<const SequenceStep> batch, const ScoredRows& scored, const BranchRows& shared) {
  PassSize size;
  size.stored = static_cast<std::int64_t>(shared.stores.size());
  size.scored = static_cast<std::int64_t>(scored.gather.size());
  size.kept = std::ranges::count(scored.needs, true, &cpu::HeadRow::logits);
  for (const SequenceStep& step : batch) {
    size.rows += step.plan.row_count();
    size.stored += static_cast<std::int64_t>(step.plan.rows.size());
    for (const PositionRange& range : step.plan.visible) size.visible += range.size();
    for (const ShadowRow& shadow : step.plan.shadows)
      for (const PositionRange& range : shadow.visible) size.visible += range.size();
    if (step.plan.lead.empty()) continue;
    for (const PlanRow& row : step.plan.rows)
      if (!leads(step.plan, row.position))
        for (const PositionRange& range : seen_behind_lead(step.plan, row.position, step.plan.visible))
          size.visible += range.size();
  }
  return size;
}

void PassArguments::add_turn(const op::Rope& o, const Weights& weights) {
  for (const Turn& turn : turns_)
    if (turn.serves(o)) return;
  std::vector<float> factors;
  if (o.factors != kNoId && weights[static_cast<std::size_t>(o.factors)].present())
    factors = decoded(weights[static_cast<std::size_t>(o.factors)]);
  turns_.push_back({&o, cpu::RopeTable(o, factors)});
}

Expected<PassArguments> PassArguments::make(const std::shared_ptr<Device>& device, const Graph& graph,
                                            const Weights& weights, const PassSize& room, std::int64_t launches,
                                            bool unrolls) {
  PassArguments made;
  std::int64_t end = rounded(groups_offset(launches));
  const auto section = [&](std::int64_t bytes) { return std::exchange(end, rounded(end + bytes)); };
  made.rows_ = section(room.rows * static_cast<std::int64_t>(sizeof(RowArgument)));
  made.stores_ = section(room.stored * static_cast<std::int64_t>(sizeof(StoreArgument)));
  made.gather_ = section(room.scored * 4);
  made.reduce_ = section(room.scored * static_cast<std::int64_t>(sizeof(ReduceRow)));
  made.asked_ = section(room.scored * cpu::kMostAsked * 4);
  made.kept_ = section(room.kept * 4);
  made.visible_ = section(room.visible * 4);
  // Every tile has a visible position; every sequence has a row, and one end more, and so has every shadow row.
  made.tiles_ = section((room.visible + room.rows + 1) * 4);
  for (const Op& op : graph.ops)
    if (const auto* rope = std::get_if<op::Rope>(&op)) made.add_turn(*rope, weights);
  for (Turn& turn : made.turns_) {
    turn.cos = section(room.rows * (turn.rope->dims / 2) * 4);
    turn.sin = section(room.rows * (turn.rope->dims / 2) * 4);
  }
  if (!device->maps(Place::kDevice)) {
    DLLM_TRY(made.own_, Buffer::make(device, end, Place::kDevice, "the arguments of a pass"));
  }
  for (const Op& op : graph.ops)
    if (std::holds_alternative<op::Embed>(op) || std::holds_alternative<op::HiddenIn>(op)) {
      const ValueId out = outputs(op).front();
      const std::int64_t width = graph.value(out).width;
      made.lookups_.push_back({&op, out, width, section(room.rows * width * 4)});
    }
  if (unrolls) made.unroll_ = section(kUnrollRows + room.scored * static_cast<std::int64_t>(sizeof(UnrollRow)));
  DLLM_TRY(made.memory_, Buffer::make(device, end, Place::kShared, "the arguments of a pass"));
  return made;
}

const PassArguments::Turn& PassArguments::turn(const op::Rope& o) const {
  return *std::find_if(turns_.begin(), turns_.end(), [&](const Turn& turn) { return turn.serves(o); });
}

VkDeviceAddress PassArguments::cos(const op::Rope& o) const { return at(turn(o).cos); }
VkDeviceAddress PassArguments::sin(const op::Rope& o) const { return at(turn(o).sin); }

VkDeviceAddress PassArguments::given(ValueId value) const {
  const auto found = std::ranges::find(lookups_, value, &Lookup::out);
  return memory_.address() + static_cast<VkDeviceAddress>(found->offset);
}

UnrollPlaces PassArguments::unrolling() const {
  const auto at = [this](std::int64_t offset) { return memory_.address() + static_cast<VkDeviceAddress>(offset); };
  return {at(unroll_), at(unroll_ + kUnrollSequences), at(unroll_ + kUnrollRows), at(0)};
}

void PassArguments::fill_unrolling(std::span<const SequenceStep> batch, const UnrollBatch& unrolled,
                                   std::int64_t launches) {
  UnrollState state;
  state.passes = static_cast<std::uint32_t>(unrolled.passes);
  state.launches = static_cast<std::uint32_t>(launches);
  if (!unrolled.rules.empty()) {
    state.sequences = static_cast<std::uint32_t>(batch.size());
    for (const SequenceStep& step : batch) state.rows += static_cast<std::uint32_t>(step.plan.scored.size());
    vulkan::fill_unrolling(batch, unrolled, to<UnrollSequence>(unroll_ + kUnrollSequences),
                           to<UnrollRow>(unroll_ + kUnrollRows));
  }
  *to<UnrollState>(unroll_) = state;
}

void PassArguments::record(Commands& commands) const {
  if (own_.bytes() == 0) return;
  commands.copy(memory_, 0, own_, 0, own_.bytes());
  commands.arguments_barrier();
}

void PassArguments::fill_rows(std::span<const SequenceStep> batch) {
  auto* row = to<RowArgument>(rows_);
  auto* const visible = to<std::int32_t>(visible_);
  auto* const tiles = to<std::int32_t>(tiles_);
  std::int32_t positions = 0, tile = 0;
  // The first tile of what a row sees, and how many they are.
  const auto fill_tiles = [&](std::span<const PositionRange> ranges) {
    const std::int32_t first = tile;
    std::int64_t current = -1;
    for (const PositionRange& range : ranges)
      for (Position p = range.begin; p < range.end; ++p) {
        if (p / kTilePositions != current) {
          current = p / kTilePositions;
          tiles[tile++] = positions;
        }
        visible[positions++] = p;
      }
    tiles[tile++] = positions;
    return std::pair(first, tile - 1 - first);
  };
  for (const SequenceStep& step : batch) {
    const StepPlan& plan = step.plan;
    const std::int64_t block = plan.causal_block;
    constexpr std::int64_t kAll = std::numeric_limits<std::int32_t>::max();
    const std::uint32_t region = plan.region == Region::kCanvas ? kOfCanvas : 0;
    const auto add = [&](const PlanRow& one, std::pair<std::int32_t, std::int32_t> seen, std::uint32_t kind,
                         bool behind = false) {
      // j/B <= i/B means j < (i/B + 1) B. What a row behind the lead sees is listed for it alone.
      const std::int64_t limit = block > 0 && !behind ? std::min(kAll, (one.position / block + 1) * block) : kAll;
      const std::int64_t first = block > 0 ? one.position / block * block : plan.rows.front().position;
      *row++ = {static_cast<VulkanKvCache&>(*step.cache).address(),
                one.position,
                static_cast<std::int32_t>(limit),
                static_cast<std::int32_t>(first),
                seen.first,
                seen.second,
                kind};
    };
    const bool ordered = !plan.lead.empty();
    const auto behind = [&](const PlanRow& one, std::span<const PositionRange> ranges, std::uint32_t kind) {
      add(one, fill_tiles(seen_behind_lead(plan, one.position, ranges)), kind, true);
    };
    const auto seen = fill_tiles(ordered ? plan.lead : plan.visible);
    for (const PlanRow& one : plan.rows)
      if (!ordered || leads(plan, one.position))
        add(one, seen, region);
      else
        behind(one, plan.visible, region);
    for (const ShadowRow& shadow : plan.shadows)
      if (ordered)
        behind(shadow.row, shadow.visible, region | kIsShadow);
      else
        add(shadow.row, fill_tiles(shadow.visible), region | kIsShadow);
  }
}

/// Rows of the plans in their own caches, shadow rows in none, shared ones in the branches' too.
void PassArguments::fill_stores(std::span<const SequenceStep> batch, const BranchRows& shared) {
  auto* store = to<StoreArgument>(stores_);
  std::vector<std::int32_t> first;  // row of each step
  std::int32_t row = 0;
  for (const SequenceStep& step : batch) {
    first.push_back(row);
    for (std::size_t i = 0; i < step.plan.rows.size(); ++i)
      *store++ = {static_cast<VulkanKvCache&>(*step.cache).address(), step.plan.rows[i].position,
                  row + static_cast<std::int32_t>(i)};
    row += static_cast<std::int32_t>(step.plan.row_count());
  }
  for (const BranchRows::Store& one : shared.stores)
    *store++ = {static_cast<VulkanKvCache&>(*one.to).address(), batch[one.step].plan.rows[one.row].position,
                first[one.step] + static_cast<std::int32_t>(one.row)};
}

/// Angles, embeddings and hidden states of every row.
void PassArguments::fill_lookups(std::span<const SequenceStep> batch, const Weights& weights) {
  std::int64_t r = 0;
  for (const SequenceStep& step : batch) {
    auto mixture = step.plan.mixtures.begin();
    const float* hidden = step.plan.hidden.data();
    const std::size_t columns = step.plan.hidden.size() / to_size(std::max<std::int64_t>(1, step.plan.row_count()));
    for (std::int32_t i = 0; i < step.plan.row_count(); ++i) {
      const PlanRow& one = step.plan.row(i);
      for (Turn& turn : turns_) {
        const auto half = static_cast<std::size_t>(turn.rope->dims / 2);
        turn.table.grow(one.position + 1);
        const auto start = static_cast<std::int64_t>(half) * r * 4;
        std::memcpy(memory_.data() + turn.cos + start, turn.table.cos(one.position), half * 4);
        std::memcpy(memory_.data() + turn.sin + start, turn.table.sin(one.position), half * 4);
      }
      const bool mixed = mixture != step.plan.mixtures.end() && i == mixture->row;
      const RowMixture* const read = mixed ? &*mixture++ : nullptr;
      for (const Lookup& lookup : lookups_) {
        float* const to_row = to<float>(lookup.offset) + r * lookup.width;
        if (const auto* embed = std::get_if<op::Embed>(lookup.op))
          cpu::embed_row(*embed, weights[static_cast<std::size_t>(embed->table)], one.token, read, lookup.width,
                         to_row);
        else
          std::copy_n(hidden + std::get<op::HiddenIn>(*lookup.op).first, lookup.width, to_row);
      }
      hidden += columns;
      ++r;
    }
  }
}

void PassArguments::fill_head(const ScoredRows& scored) {
  auto* const gather = to<std::int32_t>(gather_);
  auto* const rows = to<ReduceRow>(reduce_);
  auto* kept = to<std::int32_t>(kept_);
  for (std::size_t i = 0; i < scored.gather.size(); ++i) {
    const cpu::HeadRow& needs = scored.needs[i];
    gather[i] = static_cast<std::int32_t>(scored.gather[i]);
    rows[i] = {needs.beta, needs.logits ? 0 : static_cast<std::uint32_t>(needs.asked.size()), needs.logits ? 1U : 0U};
    if (needs.logits) {
      *kept++ = static_cast<std::int32_t>(i);
      continue;
    }
    auto* asked = to<std::uint32_t>(asked_) + static_cast<std::int64_t>(i) * cpu::kMostAsked;
    for (const cpu::AskedToken& token : needs.asked)
      *asked++ = static_cast<std::uint32_t>(token.token) | (token.ruled ? kRuledToken : 0);
  }
}

PassSize PassArguments::fill(std::span<const SequenceStep> batch, const ScoredRows& scored, const Weights& weights,
                             const BranchRows& shared) {
  const PassSize size = size_of_pass(batch, scored, shared);
  to<std::int32_t>(0)[0] = static_cast<std::int32_t>(size.rows);
  to<std::int32_t>(0)[1] = static_cast<std::int32_t>(size.scored);
  fill_rows(batch);
  fill_stores(batch, shared);
  fill_head(scored);
  fill_lookups(batch, weights);
  return size;
}

}  // namespace dllm::vulkan
