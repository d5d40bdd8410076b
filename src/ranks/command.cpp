#include "ranks/command.h"

#include <algorithm>
#include <utility>

#include "backend/kept_tokens.h"
#include "ranks/wire.h"

namespace dllm {
namespace {

enum class Verb : std::uint8_t {
  kMakeCache = 1,
  kDropCache,
  kCopyRows,
  kFollowCache,
  kAdoptRows,
  kRunSteps,
  kReport,
  kLeave,
  kCopyPositions
};

void put_ranges(WireWriter& to, const std::vector<PositionRange>& ranges) {
  to.list(ranges, [&](const PositionRange& range) { to.put(range.begin).put(range.end); });
}
void get_ranges(WireReader& from, std::vector<PositionRange>& ranges) {
  from.list(ranges, 8, [&](PositionRange& range) { from.get(range.begin), from.get(range.end); });
  Position last = 0;
  for (const PositionRange& range : ranges) {
    if (range.begin < last || range.end <= range.begin) from.fail();
    last = range.end;
  }
}

void put_rows(WireWriter& to, const std::vector<PlanRow>& rows) {
  to.list(rows, [&](const PlanRow& row) { to.put(row.position).put(row.token); });
}

void put_plan(WireWriter& to, const StepPlan& plan) {
  put_rows(to, plan.rows);
  put_ranges(to, plan.visible);
  to.put(plan.causal_block);
  to.list(plan.scored, [&](std::int32_t index) { to.put(index); });
  to.list(plan.mixtures, [&](const RowMixture& mixture) {
    to.put(mixture.row);
    to.list(mixture.tokens, [&](const MixedToken& token) { to.put(token.token).put(token.weight); });
  });
  to.put(static_cast<std::uint8_t>(plan.region));
  to.list(plan.hidden, [&](float value) { to.put(value); });
  to.list(plan.shadows, [&](const ShadowRow& shadow) {
    to.put(shadow.row.position).put(shadow.row.token);
    put_ranges(to, shadow.visible);
  });
  put_ranges(to, plan.lead);
  put_ranges(to, plan.apart);
}

/// Reads plans, and refuses what the loop would not make.
class PlanReader {
 public:
  PlanReader(WireReader& from, std::int64_t vocab) : from_(from), vocab_(vocab) {}

  void read(StepPlan& plan) {
    read_rows(plan.rows);
    get_ranges(from_, plan.visible);
    from_.get(plan.causal_block);
    from_.list(plan.scored, 4, [&](std::int32_t& index) { from_.get(index); });
    from_.list(plan.mixtures, 8, [&](RowMixture& mixture) { read_mixture(mixture, plan.rows.size()); });
    check_ascending(plan.mixtures, [](const RowMixture& mixture) { return mixture.row; });
    const auto region = from_.get<std::uint8_t>();
    if (region > static_cast<std::uint8_t>(Region::kDraft)) from_.fail();
    plan.region = static_cast<Region>(region);
    from_.list(plan.hidden, 4, [&](float& value) { from_.get(value); });
    from_.list(plan.shadows, 12, [&](ShadowRow& shadow) {
      read_row(shadow.row);
      check_token(shadow.row.token);
      get_ranges(from_, shadow.visible);
      if (shadow.visible.empty()) from_.fail();
    });
    check_ascending(plan.shadows, [](const ShadowRow& shadow) { return shadow.row.position; });
    get_ranges(from_, plan.lead);
    get_ranges(from_, plan.apart);
    if (!plan.lead.empty() && plan.causal_block != 1) from_.fail();
    check_ascending(plan.scored, [](std::int32_t index) { return index; });
    for (const PlanRow& row : plan.rows) check_token(row.token, plan.region);
    const bool outside = !plan.scored.empty() && plan.scored.back() >= plan.row_count();
    if (outside || plan.causal_block < 0 || plan.rows.empty() || !plan.hidden.empty()) from_.fail();
  }
  void read_rows(std::vector<PlanRow>& rows) {
    from_.list(rows, 8, [&](PlanRow& row) { read_row(row); });
    check_ascending(rows, [](const PlanRow& row) { return row.position; });
  }
  /// A drafter's rows show its mask where the model has none.
  void check_token(TokenId token, Region region = Region::kContext) {
    if (token < (region == Region::kDraft ? -1 : 0) || token >= vocab_) from_.fail();
  }

 private:
  void read_row(PlanRow& row) {
    from_.get(row.position), from_.get(row.token);
    if (row.position < 0 || row.token >= vocab_) from_.fail();
  }
  void read_mixture(RowMixture& mixture, std::size_t rows) {
    from_.get(mixture.row);
    if (mixture.row < 0 || static_cast<std::size_t>(mixture.row) >= rows) from_.fail();
    from_.list(mixture.tokens, 8, [&](MixedToken& token) {
      from_.get(token.token), from_.get(token.weight);
      check_token(token.token);
    });
  }
  template <class List, class Key>
  void check_ascending(const List& list, const Key& key) {
    for (std::size_t i = 0; i < list.size(); ++i)
      if (key(list[i]) < 0 || (i > 0 && key(list[i]) <= key(list[i - 1]))) from_.fail();
  }

  WireReader& from_;
  std::int64_t vocab_;
};

void put_request(WireWriter& to, const ScoreRequest& request) {
  Sampling::each<const Sampling>(request, [&](const auto& member) { to.put(member); });
  to.put(static_cast<std::uint8_t>(request.distribution)).put(request.rng.seed).put(request.rng.request);
  to.put(request.step).put(request.draw_ahead).put(request.steps_from.has_value());
  to.put(request.steps_from.value_or(0));
  to.list(request.rules, [&](const TokenRule& rule) { to.put(rule.token).put(rule.choose).put(rule.count); });
  const LogitAdjustments& adjustments = request.adjustments;
  to.put(adjustments.repetition).put(adjustments.presence).put(adjustments.frequency);
  to.list(adjustments.tokens, [&](const LogitAdjustments::Token& token) {
    to.put(token.token).put(token.in_prompt).put(token.in_answer).put(token.bias);
  });
  to.list(adjustments.shown, [&](TokenId token) { to.put(token); });
  to.list(request.queries, [&](const LogitQuery& query) { to.put(query.scored).put(query.token); });
  to.put(request.top_tokens).put(request.logits).put(request.hidden);
}

void get_request(WireReader& from, std::int64_t vocab, std::size_t scored, ScoreRequest& request) {
  const auto check = [&](bool sound) {
    if (!sound) from.fail();
  };
  const auto known = [&](TokenId token) { return token >= 0 && token < vocab; };
  Sampling::each<Sampling>(request, [&](auto& member) { from.get(member); });
  const auto distribution = from.get<std::uint8_t>();
  check(distribution <= static_cast<std::uint8_t>(ScoreDistribution::kSampled));
  request.distribution = static_cast<ScoreDistribution>(distribution);
  from.get(request.rng.seed), from.get(request.rng.request), from.get(request.step), from.get(request.draw_ahead);
  const bool has_steps = from.get<bool>();
  const auto steps_from = from.get<Position>();
  if (has_steps) request.steps_from = steps_from;
  from.list(request.rules, 6, [&](TokenRule& rule) {
    from.get(rule.token), from.get(rule.choose), from.get(rule.count);
    check(known(rule.token));
  });
  LogitAdjustments& adjustments = request.adjustments;
  from.get(adjustments.repetition), from.get(adjustments.presence), from.get(adjustments.frequency);
  TokenId last = -1;
  from.list(adjustments.tokens, 13, [&](LogitAdjustments::Token& token) {
    from.get(token.token), from.get(token.in_prompt), from.get(token.in_answer), from.get(token.bias);
    check(known(token.token) && token.token > last);
    last = token.token;
  });
  from.list(adjustments.shown, 4, [&](TokenId& token) { from.get(token); });
  check(adjustments.shown.empty() || adjustments.shown.size() == scored);
  std::int32_t row = 0;
  from.list(request.queries, 8, [&](LogitQuery& query) {
    from.get(query.scored), from.get(query.token);
    check(known(query.token) && query.scored >= row && static_cast<std::size_t>(query.scored) < scored);
    row = query.scored;
  });
  from.get(request.top_tokens), from.get(request.logits), from.get(request.hidden);
  check(request.top_tokens >= 0 && request.top_tokens <= vocab);
  check(KeptTokens::sound(request));
}

void get_steps(WireReader& from, std::int64_t vocab, RunSteps& run) {
  PlanReader plans(from, vocab);
  // The shortest step: its cache, empty lists and a request.
  from.list(run.steps, 64, [&](SequenceStep& step) {
    run.caches.push_back(from.get<std::uint32_t>());
    plans.read(step.plan);
    get_request(from, vocab, step.plan.scored.size(), step.request);
    if (!from.get<bool>()) return;
    step.guidance = Guidance{from.get<std::int32_t>(), from.get<float>()};
  });
  for (const SequenceStep& step : run.steps) {
    if (!step.guidance) continue;
    const auto other = static_cast<std::size_t>(step.guidance->unconditional);
    const bool known = step.guidance->unconditional >= 0 && other < run.steps.size();
    if (!known || &run.steps[other] == &step || run.steps[other].guidance ||
        run.steps[other].plan.scored.size() != step.plan.scored.size())
      from.fail();
  }
  std::vector<std::uint32_t> caches = run.caches;
  std::ranges::sort(caches);
  if (run.steps.empty() || std::ranges::adjacent_find(caches) != caches.end()) from.fail();
}

}  // namespace

std::vector<std::byte> encode_steps(std::span<const std::uint32_t> caches, std::span<const SequenceStep> batch) {
  WireWriter to;
  to.put(static_cast<std::uint8_t>(Verb::kRunSteps));
  std::size_t i = 0;
  to.list(batch, [&](const SequenceStep& step) {
    to.put(caches[i++]);
    put_plan(to, step.plan);
    put_request(to, step.request);
    to.put(step.guidance.has_value());
    if (step.guidance) to.put(step.guidance->unconditional).put(step.guidance->scale);
  });
  return to.take();
}

std::vector<std::byte> encode_command(const Command& command) {
  WireWriter to;
  if (const auto* make = std::get_if<MakeCache>(&command))
    to.put(static_cast<std::uint8_t>(Verb::kMakeCache)).put(make->cache).put(make->capacity);
  if (const auto* drop = std::get_if<DropCache>(&command))
    to.put(static_cast<std::uint8_t>(Verb::kDropCache)).put(drop->cache);
  if (const auto* copy = std::get_if<CopyRows>(&command))
    to.put(static_cast<std::uint8_t>(Verb::kCopyRows))
        .put(copy->from)
        .put(copy->to)
        .put(copy->rows.begin)
        .put(copy->rows.end)
        .put(copy->at);
  if (const auto* copy = std::get_if<CopyPositions>(&command)) {
    to.put(static_cast<std::uint8_t>(Verb::kCopyPositions)).put(copy->from).put(copy->to);
    to.list(copy->positions, [&](Position position) { to.put(position); });
  }
  if (const auto* follow = std::get_if<FollowCache>(&command)) {
    to.put(static_cast<std::uint8_t>(Verb::kFollowCache)).put(follow->cache).put(follow->parent);
    put_rows(to, follow->pending);
  }
  if (const auto* adopt = std::get_if<AdoptRows>(&command))
    to.put(static_cast<std::uint8_t>(Verb::kAdoptRows)).put(adopt->cache).put(adopt->branch);
  if (const auto* run = std::get_if<RunSteps>(&command)) return encode_steps(run->caches, run->steps);
  if (std::holds_alternative<Report>(command)) to.put(static_cast<std::uint8_t>(Verb::kReport));
  if (std::holds_alternative<Leave>(command)) to.put(static_cast<std::uint8_t>(Verb::kLeave));
  return to.take();
}

Expected<Command> decode_command(std::span<const std::byte> message, std::int64_t vocab) {
  WireReader from(message);
  Command command = Leave{};
  switch (static_cast<Verb>(from.get<std::uint8_t>())) {
    case Verb::kMakeCache:
      command = MakeCache{from.get<std::uint32_t>(), from.get<Position>()};
      if (std::get<MakeCache>(command).capacity < 0) from.fail();
      break;
    case Verb::kDropCache:
      command = DropCache{from.get<std::uint32_t>()};
      break;
    case Verb::kCopyRows: {
      CopyRows copy;
      from.get(copy.from), from.get(copy.to), from.get(copy.rows.begin), from.get(copy.rows.end), from.get(copy.at);
      if (copy.rows.begin < 0 || copy.rows.end < copy.rows.begin || copy.at < 0) from.fail();
      command = copy;
      break;
    }
    case Verb::kCopyPositions: {
      auto& copy = command.emplace<CopyPositions>();
      from.get(copy.from), from.get(copy.to);
      Position next = 0;
      from.list(copy.positions, sizeof next, [&](Position& position) {
        if (from.get(position); position < next) from.fail();
        next = position + 1;
      });
      break;
    }
    case Verb::kFollowCache: {
      auto& follow = command.emplace<FollowCache>();
      from.get(follow.cache), from.get(follow.parent);
      PlanReader plans(from, vocab);
      plans.read_rows(follow.pending);
      for (const PlanRow& row : follow.pending) plans.check_token(row.token);
      break;
    }
    case Verb::kAdoptRows:
      command = AdoptRows{from.get<std::uint32_t>(), from.get<std::uint32_t>()};
      break;
    case Verb::kRunSteps:
      get_steps(from, vocab, command.emplace<RunSteps>());
      break;
    case Verb::kReport:
      command = Report{};
      break;
    case Verb::kLeave:
      break;
    default:
      from.fail();
  }
  if (from.ended()) return command;
  return Error{ErrorCode::kIo, "the first rank sent a message that is no command", "ranks",
               "start all ranks with the same version"};
}

bool fits_drafter(const SequenceStep& step, Position block) {
  const StepPlan& plan = step.plan;
  if (plan.region != Region::kDraft) return true;
  const auto rows = static_cast<Position>(plan.rows.size());
  return rows >= 1 && rows <= block && plan.rows.back().position - plan.rows.front().position == rows - 1 &&
         plan.mixtures.empty() && plan.shadows.empty() && !step.guidance &&
         (plan.scored.empty() || plan.scored.front() >= 1);
}

bool fits_cache(const StepPlan& plan, const KvCache& cache) {
  const auto reads = [&](const std::vector<PositionRange>& ranges) {
    return std::ranges::all_of(ranges, [&](const PositionRange& range) {
      if (range.end > cache.capacity()) return false;
      auto row = std::ranges::lower_bound(plan.rows, range.begin, {}, &PlanRow::position);
      for (Position p = range.begin; p < range.end; ++p) {
        const bool own = row != plan.rows.end() && row->position == p;
        if (own) ++row;
        if (!own && !cache.holds(p)) return false;
      }
      return true;
    });
  };
  if (plan.rows.empty() || plan.rows.back().position >= cache.capacity() || !reads(plan.visible)) return false;
  return std::ranges::all_of(plan.shadows, [&](const ShadowRow& shadow) {
    return shadow.row.position < cache.capacity() && reads(shadow.visible);
  });
}

}  // namespace dllm
