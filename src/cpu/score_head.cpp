#include "cpu/score_head.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/to_size.h"

namespace dllm::cpu {
namespace {

/// Rows per tile: 128 KiB of logits stay in L2 until they are reduced. Matrix tiles multiply so fast that reading the
/// weights of a chunk again, from beyond L2, would take longer than what logits beyond L2 cost.
constexpr std::int64_t kHeadRows = 32, kSuperHeadRows = 128;

}  // namespace

void ScoreHead::add_sequence(std::span<const SequenceStep> batch, std::size_t sequence,
                             std::span<const std::int64_t> origin) {
  const SequenceStep& step = batch[sequence];
  for (std::size_t i = 0; i < step.plan.scored.size(); ++i) {
    const std::int32_t index = step.plan.scored[i];
    Unit unit{static_cast<std::int32_t>(sequence), static_cast<std::int32_t>(i),
              step.plan.row(index).position,       static_cast<std::int64_t>(gather_.size()),
              step.guidance.has_value(),           step.guidance ? step.guidance->scale : 0.f};
    gather_.push_back(origin[sequence] + index);
    if (step.guidance) {
      const auto other = to_size(step.guidance->unconditional);
      gather_.push_back(origin[other] + batch[other].plan.scored[i]);
    }
    units_.push_back(unit);
  }
}

/// Draws, filters, lists and adjustments read every logit.
HeadRow ScoreHead::row_of(const Unit& unit) const {
  const ReductionSpec& s = spec(unit);
  const ScoreRequest& request = s.request;
  HeadRow row;
  row.beta = s.beta[0];
  if (unit.guided || s.draws || s.list > 0 || request.logits || !request.adjustments.tokens.empty()) return row;
  std::int64_t chunk = -1;
  int rules = 0;
  for (const TokenRule& rule : request.rules) {
    rules = rule.token / kHeadChunk == chunk ? rules + 1 : 1;
    chunk = rule.token / kHeadChunk;
    if (rules > kChunkRules) return row;
    row.asked.push_back({rule.token, true});
  }
  for (const LogitQuery& query : request.queries)
    if (query.scored == unit.index) row.asked.push_back({query.token, false});
  row.logits = static_cast<std::int64_t>(row.asked.size()) > kMostAsked;
  return row;
}

/// A device's part of the reduction of a row, instead of score_tile() for each chunk.
void ScoreHead::take_chunks(std::size_t u, std::vector<Scores>& scores) {
  const Unit& unit = units_[u];
  const ReductionSpec& s = spec(unit);
  const std::span<const float> asked =
      device_->asked.subspan(static_cast<std::size_t>(unit.row * kMostAsked), static_cast<std::size_t>(kMostAsked));
  for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
    const auto first = static_cast<TokenId>(chunk * kHeadChunk);
    partial(u, chunk) = add_rules(s, unit.position, first, first + static_cast<TokenId>(chunk_size(chunk)),
                                  device_->chunks[static_cast<std::size_t>(unit.row * chunks_ + chunk)], asked);
  }
  std::size_t answer = s.request.rules.size();
  const std::vector<LogitQuery>& queries = s.request.queries;
  for (std::size_t q = 0; q < queries.size(); ++q)
    if (queries[q].scored == unit.index) scores[static_cast<std::size_t>(unit.sequence)].queried[q] = asked[answer++];
}

void ScoreHead::group_units() {
  groups_.clear();
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const std::int64_t rows = units_[u].guided ? 2 : 1;
    if (!rows_[static_cast<std::size_t>(units_[u].row)].logits) continue;
    const bool follows = !groups_.empty() && groups_.back().first_row + groups_.back().rows == units_[u].row;
    if (!follows || groups_.back().rows + rows > tile_rows_) groups_.push_back({u, 0, units_[u].row, 0});
    groups_.back().units += 1;
    groups_.back().rows += rows;
  }
}

void ScoreHead::arrange(std::span<const SequenceStep> batch, std::int64_t vocab, bool reduces) {
  vocab_ = vocab;
  chunks_ = (vocab + kHeadChunk - 1) / kHeadChunk;
  specs_.clear();
  units_.clear();
  gather_.clear();
  std::vector<std::int64_t> origin;
  std::vector<bool> unconditional(batch.size(), false);
  std::int64_t rows = 0;
  for (const SequenceStep& step : batch) {
    specs_.emplace_back(step.request, vocab);
    origin.push_back(rows);
    rows += step.plan.row_count();
    if (step.guidance) unconditional[to_size(step.guidance->unconditional)] = true;
  }
  for (std::size_t s = 0; s < batch.size(); ++s)
    if (!unconditional[s]) add_sequence(batch, s, origin);
  rows_.assign(gather_.size(), {});
  if (!reduces) return;
  for (const Unit& unit : units_) rows_[static_cast<std::size_t>(unit.row)] = row_of(unit);
}

void ScoreHead::reserve() {
  std::int64_t capacity = 0;
  for (const Unit& unit : units_) capacity = std::max(capacity, spec(unit).list);
  list_capacity_ = to_size(capacity);
  const auto units = static_cast<std::int64_t>(units_.size()), workers = static_cast<std::int64_t>(pool_.size());
  tiles_.reserve(bytes_of<float>(workers * tile_rows_ * kHeadChunk));
  partials_.reserve(bytes_of<Partial>(units * chunks_));
  lists_.reserve(bytes_of<TopToken>(workers * units * capacity));
  list_sizes_.reserve(bytes_of<std::int32_t>(workers * units));
  std::fill_n(list_sizes_.as<std::int32_t>(), workers * units, 0);
  unfinished_.assign(units_.size(), 0);
}

std::int64_t ScoreHead::chunk_size(std::int64_t chunk) const {
  return std::min(kHeadChunk, vocab_ - chunk * kHeadChunk);
}

float* ScoreHead::compute_tile(const LogitTile& logits, const Group& group, std::int64_t chunk, int worker) {
  float* tile = tiles_.as<float>() + static_cast<std::int64_t>(worker) * tile_rows_ * kHeadChunk;
  const std::int64_t origin = chunk * kHeadChunk, size = chunk_size(chunk);
  logits(group.first_row, group.rows, origin, origin + size, tile, worker);
  if (softcap_ != 0)
    for (std::int64_t row = 0; row < group.rows; ++row)
      kernels_.softcap(tile + row * kHeadChunk, softcap_, size, tile + row * kHeadChunk);
  for (std::size_t u = group.first_unit; u < group.first_unit + group.units; ++u) {
    if (!units_[u].guided) continue;
    float* c = tile + (units_[u].row - group.first_row) * kHeadChunk;
    const float* uncond = c + kHeadChunk;
    const float weight = units_[u].scale + 1.f;
    for (std::int64_t i = 0; i < size; ++i) c[i] = uncond[i] + weight * (c[i] - uncond[i]);
  }
  for (std::size_t u = group.first_unit; u < group.first_unit + group.units; ++u)
    spec(units_[u]).request.adjustments.apply(to_size(units_[u].index), static_cast<TokenId>(origin),
                                              {tile + (units_[u].row - group.first_row) * kHeadChunk, to_size(size)});
  return tile;
}

void ScoreHead::report_queries(const Unit& unit, TokenId first, std::span<const float> logits, Scores& scores) const {
  const std::vector<LogitQuery>& queries = spec(unit).request.queries;
  auto query = std::lower_bound(queries.begin(), queries.end(), unit.index,
                                [](const LogitQuery& a, std::int32_t scored) { return a.scored < scored; });
  for (; query != queries.end() && query->scored == unit.index; ++query) {
    const std::int64_t i = query->token - first;
    if (i >= 0 && i < static_cast<std::int64_t>(logits.size()))
      scores.queried[to_size(query - queries.begin())] = logits[to_size(i)];
  }
}

void ScoreHead::score_tile(const LogitTile& source, const Group& group, std::int64_t chunk, int worker,
                           std::vector<Scores>& scores) {
  float* tile = compute_tile(source, group, chunk, worker);
  const auto size = to_size(chunk_size(chunk));
  const auto first = static_cast<TokenId>(chunk * kHeadChunk);
  for (std::size_t u = group.first_unit; u < group.first_unit + group.units; ++u) {
    const Unit& unit = units_[u];
    const std::span<float> logits(tile + (unit.row - group.first_row) * kHeadChunk, size);
    if (spec(unit).request.logits)
      std::memcpy(scores[to_size(unit.sequence)].logits.data() + unit.index * vocab_ + first, logits.data(),
                  size * sizeof(float));
    report_queries(unit, first, logits, scores[to_size(unit.sequence)]);
    if (spec(unit).list > 0)
      TopList(list(worker, u), spec(unit).list, list_size(worker, u)).offer(kernels_, first, logits);
    partial(u, chunk) = reduce_chunk(kernels_, spec(unit), unit.position, first, logits);
  }
}

namespace {

/// Keeps only the counted entries of a sorted list, at most `limit`.
std::int64_t drop_uncounted(const ReductionSpec& spec, std::span<TopToken> tokens) {
  const auto end = std::remove_if(tokens.begin(), tokens.end(), [&](const TopToken& token) {
    for (const TokenRule& rule : spec.request.rules)
      if (rule.token == token.token) return !rule.count;
    return false;
  });
  return end - tokens.begin();
}

}  // namespace

std::vector<TopToken> ScoreHead::merged_lists(std::size_t u) {
  std::vector<TopToken> best;
  for (int worker = 0; worker < pool_.size(); ++worker)
    best.insert(best.end(), list(worker, u), list(worker, u) + *list_size(worker, u));
  return best;
}

bool ScoreHead::finish_unit(std::size_t u, std::vector<Scores>& scores) {
  const Unit& unit = units_[u];
  const ReductionSpec& s = spec(unit);
  Scores& out = scores[to_size(unit.sequence)];
  // The sum over chunks begins with the first chunk, in place.
  Partial& all = partial(u, 0);
  for (std::int64_t chunk = 1; chunk < chunks_; ++chunk) merge(s, partial(u, chunk), all);
  RowScore& score = out.rows[to_size(unit.index)];
  if (s.list == 0) {
    score = finish(s, unit.position, all);
    return true;
  }

  std::vector<TopToken> best = merged_lists(u);
  if (shared()) best.insert(best.end(), remote_[u].begin(), remote_[u].end());
  std::sort(best.begin(), best.end(), better);
  const bool complete = static_cast<std::int64_t>(best.size()) < s.list || s.list == vocab_;
  if (static_cast<std::int64_t>(best.size()) > s.list) best.resize(to_size(s.list));
  for (std::int32_t i = 0; i < s.request.top_tokens; ++i)
    out.top[to_size(unit.index * s.request.top_tokens + i)] =
        to_size(i) < best.size() ? best[to_size(i)] : TopToken{kNoToken, kMinusInfinity};
  if (s.kept.all()) {
    score = finish(s, unit.position, all);
    return true;
  }
  best.resize(to_size(drop_uncounted(s, best)));
  const std::int64_t kept = s.kept.count(best, kept_mass(s, all), complete);
  if (kept == KeptTokens::kNeedsMore) return false;
  score = finish_filtered(s, unit.position, all, std::span(best).first(to_size(kept)));
  return true;
}

void ScoreHead::collect_nuclei(const LogitTile& source, std::span<const Group> groups, std::vector<Scores>& scores) {
  const auto workers = to_size(pool_.size()), first_unit = groups.front().first_unit;
  const std::size_t units = groups.back().first_unit + groups.back().units - first_unit;
  const auto count = static_cast<std::int64_t>(groups.size());
  std::vector<std::vector<TopToken>> found(workers * units);
  parallel(pool_, (end_chunk() - first_chunk()) * count, [&](std::int64_t task, int worker) {
    const Group& group = groups[to_size(task % count)];
    const std::int64_t chunk = first_chunk() + task / count;
    const float* tile = compute_tile(source, group, chunk, worker);
    const auto first = static_cast<TokenId>(chunk * kHeadChunk);
    for (std::size_t u = group.first_unit; u < group.first_unit + group.units; ++u) {
      const Unit& unit = units_[u];
      if (unfinished_[u] == 0) continue;
      const Partial& whole = partial(u, 0);
      const float bound = spec(unit).kept.bound(whole.top.logit, kept_mass(spec(unit), whole));
      const float* logits = tile + (unit.row - group.first_row) * kHeadChunk;
      for (std::int64_t t = 0; t < chunk_size(chunk); ++t)
        if (logits[t] >= bound)
          found[to_size(worker) * units + u - first_unit].push_back({first + static_cast<TokenId>(t), logits[t]});
    }
  });
  if (shared()) share_found(found, units);
  parallel(pool_, static_cast<std::int64_t>(units), [&](std::int64_t i, int) {
    const std::size_t u = first_unit + to_size(i);
    if (unfinished_[u] == 0) return;
    const ReductionSpec& s = spec(units_[u]);
    std::vector<TopToken>& all = found[to_size(i)];
    for (std::size_t worker = 1; worker < workers; ++worker) {
      const auto& more = found[worker * units + to_size(i)];
      all.insert(all.end(), more.begin(), more.end());
    }
    std::sort(all.begin(), all.end(), better);
    all.resize(to_size(drop_uncounted(s, all)));
    const std::int64_t kept = s.kept.count(all, kept_mass(s, partial(u, 0)), true);
    scores[to_size(units_[u].sequence)].rows[to_size(units_[u].index)] =
        finish_filtered(s, units_[u].position, partial(u, 0), std::span(all).first(to_size(kept)));
  });
}

void ScoreHead::run(const LinearArgs& base, std::int64_t vocab, std::vector<Scores>& scores, float softcap,
                    const HeadShare& share, const std::optional<QuantizedRows>& residual) {
  share_ = share;
  const std::int64_t origin = shared() ? share.first : 0;
  const LogitTile multiply = [&](std::int64_t first, std::int64_t rows, std::int64_t begin, std::int64_t end,
                                 float* tile, int worker) {
    LinearArgs args = from_row(base, first);
    args.rows = rows;
    args.out = tile;
    args.out_stride = kHeadChunk;
    args.out_origin = begin - origin;
    kernels_.linear(args, begin - origin, end - origin, linear_.scratch(worker));
    if (!residual) return;
    args.quantized = *residual;
    args.quantized = from_row(args, first).quantized;
    linear_.accumulate(args, begin - origin, end - origin, worker);
  };
  run_tiles(multiply, on_tiles(base) ? kSuperHeadRows : kHeadRows, vocab, scores, softcap);
}

void ScoreHead::reduce(const DeviceHead& device, std::int64_t vocab, std::vector<Scores>& scores, float softcap) {
  device_ = &device;
  share_ = {};
  run_tiles(device.logits, kHeadRows, vocab, scores, softcap);
  device_ = nullptr;
}

void ScoreHead::size_scores(std::int64_t vocab, std::vector<Scores>& scores) const {
  for (const Unit& unit : units_) {
    Scores& out = scores[to_size(unit.sequence)];
    if (unit.index != 0) continue;
    std::size_t rows = 0;
    for (const Unit& other : units_) rows += other.sequence == unit.sequence ? 1 : 0;
    out.rows.resize(rows);
    out.top.resize(rows * to_size(spec(unit).request.top_tokens));
    out.queried.resize(spec(unit).request.queries.size());
    if (spec(unit).request.logits) out.logits.resize(bytes_of<char>(static_cast<std::int64_t>(rows) * vocab));
  }
}

void ScoreHead::run_tiles(const LogitTile& logits, std::int64_t tile_rows, std::int64_t vocab,
                          std::vector<Scores>& scores, float softcap) {
  softcap_ = softcap;
  tile_rows_ = tile_rows;
  group_units();
  size_scores(vocab, scores);
  reserve();
  // Groups innermost: the weights of a chunk are read from memory once and stay in cache for all rows.
  const auto groups = static_cast<std::int64_t>(groups_.size());
  parallel(pool_, (end_chunk() - first_chunk()) * groups, [&](std::int64_t task, int worker) {
    score_tile(logits, groups_[to_size(task % groups)], first_chunk() + task / groups, worker, scores);
  });
  if (shared()) share_tiles(scores);
  parallel(pool_, static_cast<std::int64_t>(units_.size()), [&](std::int64_t u, int) {
    if (!rows_[to_size(units_[to_size(u)].row)].logits) take_chunks(to_size(u), scores);
    unfinished_[to_size(u)] = finish_unit(to_size(u), scores) ? 0 : 1;
  });
  // Ranks may have tiles of different heights, so they exchange once for all groups; alone, one group at a time takes
  // the least memory.
  const std::size_t together = shared() ? groups_.size() : 1;
  for (std::size_t g = 0; g < groups_.size(); g += together) {
    const std::span<const Group> some = std::span<const Group>(groups_).subspan(g, together);
    const auto first = unfinished_.begin() + static_cast<std::ptrdiff_t>(some.front().first_unit);
    const auto end = unfinished_.begin() + static_cast<std::ptrdiff_t>(some.back().first_unit + some.back().units);
    if (std::any_of(first, end, [](std::uint8_t u) { return u != 0; })) collect_nuclei(logits, some, scores);
  }
}

}  // namespace dllm::cpu
