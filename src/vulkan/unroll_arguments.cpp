#include "vulkan/unroll_arguments.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "base/try.h"
#include "cpu/embedding.h"

namespace dllm::vulkan {
namespace {

bool is_plain(const StepPlan& plan) {
  return plan.region == Region::kContext && plan.mixtures.empty() && plan.hidden.empty() && plan.shadows.empty() &&
         plan.given.empty() && plan.groups.empty() && plan.columns == 0 && plan.lead.empty();
}

/// Rules that say only what is never chosen.
bool forbids_only(std::span<const TokenRule> rules) { return std::ranges::none_of(rules, &TokenRule::choose); }

bool counts(std::span<const TokenRule> rules, TokenId token) {
  return std::ranges::all_of(rules, [&](const TokenRule& rule) { return rule.token != token || rule.count; });
}

UnrollSequence sequence_of(const CommitRule& rule, std::int32_t passes) {
  UnrollSequence one;
  one.by_counts = rule.threshold ? 0 : 1;
  one.threshold = rule.threshold.value_or(0);
  one.tie = rule.tie;
  one.first_stop = rule.first_stop.value_or(std::numeric_limits<std::int32_t>::max());
  for (const TokenId stop : rule.stops) one.stop[one.stops++] = static_cast<std::uint32_t>(stop);
  for (std::size_t i = 0; !rule.threshold && i < static_cast<std::size_t>(passes); ++i)
    one.counts[i] = static_cast<std::uint32_t>(rule.counts[i]);
  return one;
}

/// 0: the graph has no head.
std::int64_t vocabulary_of(const Graph& graph) {
  for (const Op& op : graph.ops)
    if (const auto* head = std::get_if<op::ScoreHead>(&op)) return graph.weight(head->weight).shape[1];
  return 0;
}

/// The row that reads the token of a position, among the plan's; -1: none does.
std::int32_t row_at(const StepPlan& plan, Position position) {
  const auto found = std::ranges::lower_bound(plan.rows, position, {}, &PlanRow::position);
  if (found == plan.rows.end() || found->position != position) return -1;
  return static_cast<std::int32_t>(found - plan.rows.begin());
}

}  // namespace

std::int32_t passes_of(const SequenceStep& step, const CommitRule& rule, std::span<const cpu::HeadRow> needs) {
  const ScoreRequest& request = step.request;
  const bool plain = is_plain(step.plan) && !step.guidance && request.queries.empty() && !request.hidden &&
                     forbids_only(request.rules) && request.rules.size() <= kMostUnrolledRules &&
                     rule.stops.size() <= kMostUnrolledStops && step.cache->parent() == nullptr;
  if (!plain || std::ranges::any_of(needs, &cpu::HeadRow::logits)) return 1;
  std::int32_t passes = std::min(rule.passes, kMostUnrolled);
  if (!rule.threshold) passes = std::min(passes, static_cast<std::int32_t>(rule.counts.size()));
  // Each pass commits one at least, and the one after the last mask is not the window's.
  return std::clamp(static_cast<std::int32_t>(needs.size()), 1, std::max(1, passes));
}

UnrollBatch plan_unrolling(std::span<const SequenceStep> batch, std::span<const std::optional<CommitRule>> rules,
                           std::span<const cpu::HeadRow> scored, std::int32_t most) {
  if (most <= 1 || batch.size() > kMostUnrolledSequences || scored.size() > kMostUnrolledRows) return {};
  UnrollBatch unrolled{most, {}};
  for (std::size_t s = 0, first = 0; s < batch.size(); ++s) {
    const std::size_t count = batch[s].plan.scored.size();
    const std::int32_t passes =
        rules[s] && count > 0 ? passes_of(batch[s], *rules[s], scored.subspan(first, count)) : 1;
    if (passes <= 1) return {};
    unrolled.passes = std::min(unrolled.passes, passes);
    unrolled.rules.push_back(*rules[s]);
    first += count;
  }
  return unrolled;
}

Expected<void> check_embeddings(const Graph& graph) {
  const std::int64_t vocabulary = vocabulary_of(graph);
  for (const Op& op : graph.ops) {
    const auto* const embed = std::get_if<op::Embed>(&op);
    const bool short_table = embed != nullptr && graph.weight(embed->table).shape[1] < vocabulary;
    if (std::holds_alternative<op::HiddenIn>(op) || vocabulary == 0 || short_table)
      return Error{ErrorCode::kUnsupported, "the rows of this model's passes do not follow from tokens alone",
                   "--unroll", "leave it out"};
  }
  return {};
}

Expected<std::vector<Buffer>> embedding_tables(const std::shared_ptr<Device>& device, const Graph& graph,
                                               const Weights& weights, ThreadPool& pool) {
  std::vector<Buffer> tables;
  const std::int64_t vocabulary = vocabulary_of(graph);
  for (const Op& op : graph.ops) {
    const auto* const embed = std::get_if<op::Embed>(&op);
    if (embed == nullptr || embed->part == EmbedPart::kMixture) continue;
    const std::int64_t width = graph.value(embed->out).width, row_bytes = width * 4;
    DLLM_TRY(Buffer table, Buffer::make(device, vocabulary * row_bytes, Place::kDevice, "the embeddings of tokens"));
    Uploader uploader(device);
    const std::int64_t most = std::max<std::int64_t>(1, (std::int64_t{1} << 24) / row_bytes);
    std::vector<float> piece(static_cast<std::size_t>(most * width));
    for (std::int64_t first = 0; first < vocabulary; first += most) {
      const std::int64_t count = std::min(most, vocabulary - first);
      parallel(pool, count, [&](std::int64_t row, int) {
        cpu::embed_row(*embed, weights[static_cast<std::size_t>(embed->table)], static_cast<TokenId>(first + row),
                       nullptr, width, piece.data() + row * width);
      });
      const auto bytes = std::as_bytes(std::span(piece)).first(static_cast<std::size_t>(count * row_bytes));
      DLLM_CHECK_OK(uploader.copy(table, bytes, first * row_bytes));
    }
    tables.push_back(std::move(table));
  }
  return tables;
}

void fill_unrolling(std::span<const SequenceStep> batch, const UnrollBatch& unrolled, UnrollSequence* sequences,
                    UnrollRow* rows) {
  std::int32_t origin = 0, scored = 0;
  for (std::size_t s = 0; s < batch.size(); ++s) {
    const StepPlan& plan = batch[s].plan;
    const CommitRule& rule = unrolled.rules[s];
    UnrollSequence one = sequence_of(rule, unrolled.passes);
    // In the order of what is asked of a row: ascending, each token once.
    std::vector<TokenId> tokens;
    for (const TokenRule& ruled : batch[s].request.rules) tokens.push_back(ruled.token);
    std::ranges::sort(tokens);
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (const TokenId token : tokens) {
      if (counts(batch[s].request.rules, token)) one.counted |= 1U << one.rules;
      ++one.rules;
    }
    one.first = scored;
    one.count = static_cast<std::int32_t>(plan.scored.size());
    for (const std::int32_t index : plan.scored) {
      const Position predicted = plan.row(index).position + rule.shift;
      const std::int32_t target = row_at(plan, predicted);
      *rows++ = {static_cast<std::int32_t>(s), target < 0 ? -1 : origin + target, predicted, 1, -1, {}};
    }
    scored += one.count;
    origin += static_cast<std::int32_t>(plan.rows.size());
    *sequences++ = one;
  }
}

}  // namespace dllm::vulkan
