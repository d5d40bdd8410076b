#include "cpu/attention.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>

#include "backend/lead.h"
#include "base/parallel.h"
#include "base/to_size.h"
#include "cpu/cpu_kv_cache.h"

namespace dllm::cpu {
namespace {

/// The group that a position belongs to; nullptr: none.
const PositionRange* group_of(const StepPlan& plan, Position position) {
  for (const PositionRange& group : plan.groups)
    if (group.contains(position)) return &group;
  return nullptr;
}

}  // namespace

void AttentionRunner::begin(std::span<const SequenceStep> batch, UnitRange own) {
  own_ = own;
  sequences_.clear();
  caches_.clear();
  ranges_.clear();
  views_.clear();
  limits_.clear();
  causal_limits_.clear();
  for (const SequenceStep& step : batch) {
    const StepPlan& plan = step.plan;
    Sequence sequence{.first_cache = caches_.size(),
                      .caches = 0,
                      .first_row = static_cast<std::int64_t>(limits_.size()),
                      .first_view = views_.size(),
                      .views = 0,
                      .keys = 0,
                      .plan = &plan};
    for (const KvCache* cache = step.cache; cache != nullptr; cache = cache->parent())
      caches_.push_back(static_cast<const CpuKvCache*>(cache));
    sequence.caches = caches_.size() - sequence.first_cache;
    assert(sequence.caches <= std::size_t{Backend::kMostBranchDepth} + 1);
    for (const PositionRange& range : plan.visible) sequence.keys += range.size();
    add_views(plan, *step.cache);
    sequence.views = views_.size() - sequence.first_view;
    add_limits(plan);
    sequences_.push_back(sequence);
  }
  whole_ranges_ = ranges_.size();
}

/// One view for the rows of a plan and one for each shadow row; under `lead`, one for each run of rows that lead and
/// one for each other row.
void AttentionRunner::add_views(const StepPlan& plan, const KvCache& cache) {
  const auto rows = static_cast<std::int64_t>(plan.rows.size());
  std::int64_t row = 0;
  if (plan.lead.empty()) {
    add_view(0, rows, plan.visible, cache);
    row = rows;
  }
  for (std::int64_t end = row; row < rows; row = end) {
    while (end < rows && leads(plan, plan.rows[to_size(end)].position)) ++end;
    if (end > row) {
      add_view(row, end, plan.lead, cache);
      continue;
    }
    ++end;
    add_view(row, end, seen_behind_lead(plan, plan.rows[to_size(row)].position, plan.visible), cache);
  }
  for (const ShadowRow& shadow : plan.shadows) {
    const bool all = plan.lead.empty();
    add_view(row, row + 1, all ? shadow.visible : seen_behind_lead(plan, shadow.row.position, shadow.visible), cache);
    ++row;
  }
}

void AttentionRunner::add_view(std::int64_t begin, std::int64_t end, std::span<const PositionRange> visible,
                               const KvCache& cache) {
  const std::size_t first = ranges_.size();
  add_ranges(visible, cache);
  views_.push_back({sequences_.size(), begin, end, first, ranges_.size() - first});
}

void AttentionRunner::add_limits(const StepPlan& plan) {
  // j/B <= i/B means j < (i/B + 1) B.
  const std::int64_t block = plan.causal_block;
  constexpr std::int64_t kAll = std::numeric_limits<std::int32_t>::max();
  for (std::int32_t row = 0; row < plan.row_count(); ++row) {
    const Position position = plan.row(row).position;
    causal_limits_.push_back(position + 1);
    const PositionRange* const group = group_of(plan, position);
    const bool shadow = to_size(row) >= plan.rows.size();
    // The ranges of a row behind the lead are its own.
    const bool cut = !plan.lead.empty() && (shadow || !leads(plan, position));
    const std::int64_t limit = block > 0 && !cut ? std::min(kAll, (position / block + 1) * block) : kAll;
    limits_.push_back(static_cast<std::int32_t>(group != nullptr ? group->end : limit));
  }
}

/// Ranges of a branch end where the next row is stored by another cache. By then the rows of this pass are recorded.
void AttentionRunner::add_ranges(std::span<const PositionRange> visible, const KvCache& cache) {
  for (const PositionRange& range : visible) {
    if (cache.parent() == nullptr) {
      ranges_.push_back({range.begin, range.end});
      continue;
    }
    const KvCache* before = nullptr;
    for (Position p = range.begin; p < range.end; ++p) {
      const KvCache* const holder = &cache.holder(p);
      if (holder == before) {
        ranges_.back().end = p + 1;
        continue;
      }
      std::int32_t source = 0;
      for (const KvCache* one = &cache; one != holder; one = one->parent()) ++source;
      ranges_.push_back({p, p + 1, source});
      before = holder;
    }
  }
}

/// The lower end of a window is the same for all rows of an attention block, so it is applied to their ranges: the
/// kernel masks upper ends only. Rows of a causal plan beyond the first window are separate segments, and hence
/// tasks, which leaves most lanes of their tiles empty. This happens once for a prompt, and canvases are one
/// segment. A shadow row's ranges are its own, so it is one too.
void AttentionRunner::find_segments(std::int32_t window, op::RowView view) {
  ranges_.resize(whole_ranges_);
  segments_.clear();
  for (const Sequence& sequence : sequences_) {
    const StepPlan& plan = *sequence.plan;
    const auto floor_of = [&](std::int64_t row) {
      const std::int64_t position = plan.row(static_cast<std::int32_t>(row)).position, block = plan.causal_block;
      const std::int64_t first = view != op::RowView::kPlan ? position
                                 : block > 0                ? position / block * block
                                                            : plan.rows.front().position;
      std::int64_t floor = window == 0 ? 0 : std::max<std::int64_t>(0, first - window + 1);
      if (const PositionRange* const group = group_of(plan, plan.row(static_cast<std::int32_t>(row)).position))
        floor = std::min<std::int64_t>(floor, group->begin);
      return floor;
    };
    for (const Segment& whole : std::span(views_).subspan(sequence.first_view, sequence.views))
      for (Segment part = whole; part.begin < whole.end; part.begin = part.end) {
        const std::int64_t floor = floor_of(part.begin);
        part.end = window == 0 ? whole.end : part.begin + 1;
        while (part.end < whole.end && floor_of(part.end) == floor) ++part.end;
        add_segment(part, floor);
      }
  }
}

/// Rows that see these ranges from `floor` on.
void AttentionRunner::add_segment(Segment segment, std::int64_t floor) {
  const std::int64_t origin = sequences_[segment.sequence].first_row;
  segment.begin = std::max(segment.begin, own_.first - origin);
  segment.end = std::min(segment.end, own_.end() - origin);
  if (segment.begin >= segment.end) return;
  if (floor > 0) {
    const std::size_t first = ranges_.size();
    for (std::size_t r = segment.first_range; r < segment.first_range + segment.ranges; ++r) {
      const KeyRange range = ranges_[r];
      if (range.end > floor) ranges_.push_back({std::max(range.begin, floor), range.end, range.source});
    }
    segment.first_range = first, segment.ranges = ranges_.size() - first;
  }
  segments_.push_back(segment);
}

void AttentionRunner::cut(const op::Attention& o) {
  find_segments(o.window, o.view);
  const std::int64_t group = o.heads / o.kv_heads, threads = pool_.size();
  const auto count = [&](std::int64_t queries) {
    std::int64_t tasks = 0;
    for (const Segment& s : segments_) tasks += o.kv_heads * (((s.end - s.begin) * group + queries - 1) / queries);
    return tasks;
  };
  // Many queries share the widening of K and V; 32 fill the widest register tile, 16 the narrowest. Four tasks per
  // thread finish evenly; half-filled tiles only pay off if threads would otherwise be idle.
  std::int64_t queries = kAttentionQueries;
  while (threads > 1 && queries > 32 && count(queries) < 4 * threads) queries /= 2;
  while (queries > 16 && count(queries) < threads) queries /= 2;
  tasks_.clear();
  // The tasks of one kv head are adjacent, so that its keys stay in the shared cache.
  for (const Segment& s : segments_)
    for (std::int64_t head = 0; head < o.kv_heads; ++head)
      for (std::int64_t begin = s.begin * group; begin < s.end * group; begin += queries)
        tasks_.push_back({s.sequence, head, begin, std::min(s.end * group, begin + queries), s.first_range, s.ranges});
}

void AttentionRunner::attend(const op::Attention& o, const Task& task, const float* q, float* out, int worker) {
  const Sequence& sequence = sequences_[task.sequence];
  const CpuKvCache* const* const caches = caches_.data() + sequence.first_cache;
  std::array<SharedRows, Backend::kMostBranchDepth> shared;
  for (std::size_t i = 1; i < sequence.caches; ++i)
    shared[i - 1] = {caches[i]->k(o.layer, task.kv_head), caches[i]->v(o.layer, task.kv_head)};
  const CpuKvCache& cache = *caches[0];
  AttentionArgs args;
  args.form = form_;
  args.type = cache.type();
  args.k = cache.k(o.layer, task.kv_head);
  args.v = cache.v(o.layer, task.kv_head);
  args.shared = shared.data();
  args.position_bytes = cache.position_bytes(o.layer);
  args.head_dim = o.head_dim;
  args.group = o.heads / o.kv_heads;
  args.scale = o.scale;
  args.plain_keys = cache.plain_keys();
  args.ranges = ranges_.data() + task.first_range;
  args.range_count = static_cast<std::int64_t>(task.ranges);
  args.limits = (o.view == op::RowView::kCausal ? causal_limits_ : limits_).data() + sequence.first_row;
  args.row_stride = std::int64_t{o.heads} * o.head_dim;
  const std::int64_t origin = sequence.first_row * args.row_stride + task.kv_head * args.group * o.head_dim;
  args.q = q + origin;
  args.out = out + origin;
  args.begin = task.begin;
  args.end = task.end;
  args.scratch = scratch_.data() + attention_scratch_bytes(o.head_dim) * static_cast<std::size_t>(worker);
  kernels_.attention(args);
}

void AttentionRunner::run(const op::Attention& o, const float* q, float* out) {
  cut(o);
  scratch_.reserve(attention_scratch_bytes(o.head_dim) * static_cast<std::size_t>(pool_.size()));
  std::int64_t keys = 0, queries = 0;
  for (const Task& task : tasks_) {
    keys = std::max(keys, sequences_[task.sequence].keys);
    queries = std::max(queries, task.end - task.begin);
  }
  // Sixteen lanes at a time.
  parallel_items(
      pool_, static_cast<std::int64_t>(tasks_.size()), keys * o.head_dim * ((queries + 15) / 16),
      [&](std::int64_t task, int worker) { attend(o, tasks_[static_cast<std::size_t>(task)], q, out, worker); });
}

}  // namespace dllm::cpu
