#include "engine/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "base/to_size.h"
#include "base/try.h"
#include "decode/registry.h"
#include "engine/common_options.h"
#include "engine/option_parts.h"
#include "engine/replay.h"

namespace dllm {
namespace {

/// By position, the pass that first filled it; -1: none.
std::vector<std::int32_t> first_commits(const std::vector<PassRecord>& passes, std::int32_t length) {
  std::vector<std::int32_t> first(to_size(length), -1);
  for (std::size_t pass = passes.size(); pass-- > 0;)
    for (const PassChange& change : passes[pass].changes)
      if (change.kind == PassChange::Kind::kCommit) first[to_size(change.position)] = static_cast<std::int32_t>(pass);
  return first;
}

/// Keeps the first `count` passes, and what they did to the first `positions` positions.
void cut_passes(std::vector<PassRecord>& passes, std::size_t count, std::int32_t positions) {
  passes.resize(count);
  for (PassRecord& pass : passes) {
    for (auto* const list : {&pass.reviewed, &pass.refreshed})
      std::erase_if(*list, [positions](std::int32_t p) { return p >= positions; });
    for (auto* const changes : {&pass.changes, &pass.merged})
      std::erase_if(*changes, [positions](const PassChange& change) { return change.position >= positions; });
    pass.settled = std::min(pass.settled, positions);
  }
  passes.back().settled = positions;
}

}  // namespace

bool Recording::in_order() const { return traits_of(modes(), options.mode).in_order; }

GenerateOptions Recording::replay_options(std::int32_t positions) const {
  GenerateOptions result = options;
  result.length = positions;
  if (!in_order()) result.block_length = std::min(block_length, positions);
  return result;
}

std::vector<std::size_t> Recording::spread(std::size_t count) const {
  std::vector<std::size_t> order(answers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
    return answers[a].tokens_per_pass() < answers[b].tokens_per_pass();
  });
  if (count >= order.size()) return order;
  if (count == 1) {
    // Where answers differ much, the median can be far from the overall rate.
    double tokens = 0, passes = 0;
    for (const RecordedAnswer& answer : answers) tokens += answer.answer_tokens, passes += answer.nfe;
    const auto distance = [&](std::size_t i) { return std::abs(answers[i].tokens_per_pass() - tokens / passes); };
    return {*std::min_element(order.begin(), order.end(),
                              [&](std::size_t a, std::size_t b) { return distance(a) < distance(b); })};
  }
  std::vector<std::size_t> chosen;  // the middles of `count` equal parts
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(order[(2 * i + 1) * order.size() / (2 * count)]);
  return chosen;
}

Expected<CommitSchedule> Recording::schedule(std::size_t answer, std::int32_t positions) const {
  const RecordedAnswer& recorded = answers[answer];
  CommitSchedule schedule{.pass_of = recorded.commit_step, .passes = recorded.passes};
  if (recorded.stops) schedule.stop = recorded.answer_tokens - 1;
  if (positions == length) return schedule;
  if (!schedule.passes.empty()) schedule.pass_of = first_commits(schedule.passes, length);
  const auto cut = schedule.pass_of.begin() + std::min(positions, length);
  if (positions > length || (!in_order() && positions % block_length != 0))
    return Error{ErrorCode::kUsage, fmt::format("a recording of {} positions is not one of {}", length, positions),
                 "--canvas-length", fmt::format("give {} or fewer, in whole blocks of {}", length, block_length)};
  const std::int32_t last = *std::max_element(schedule.pass_of.begin(), cut);
  if (!in_order() &&
      std::any_of(cut, schedule.pass_of.end(), [last](std::int32_t pass) { return pass >= 0 && pass <= last; }))
    return Error{ErrorCode::kUsage,
                 fmt::format("answer {} of the recording commits positions after the first {} together with these",
                             answer, positions),
                 "--canvas-length", fmt::format("leave it out: the recorded length is {}", length)};
  schedule.pass_of.erase(cut, schedule.pass_of.end());
  if (!schedule.passes.empty()) {
    const bool ends_before = schedule.stop && *schedule.stop < positions;
    cut_passes(schedule.passes, ends_before ? schedule.passes.size() : to_size(last) + 1, positions);
    schedule.pass_of = commit_steps(schedule.passes, positions);
  }
  // One position that is left is not drafted: its pass follows the one before at once.
  auto& passes = schedule.pass_of;
  if (in_order() && passes.size() > 1 && passes.back() == last && passes[passes.size() - 2] < last)
    passes.back() = passes[passes.size() - 2] + 1;
  if (schedule.stop && *schedule.stop >= positions) schedule.stop.reset();
  return schedule;
}

OptionMap given_options(const GenerateOptions& options) {
  OptionMap given;
  if (!options.preset.empty()) given.emplace("preset", options.preset);
  for (const CommonOption& one : common_options())
    if (const auto value = one.given.load(options)) given.emplace(one.info().key, *value);
  for (const char* key : {"length", "max_tokens", "block_length", "seed", "context"}) given.erase(key);
  for (const OptionPart& part : option_parts()) {
    const MethodChoice& choice = options.*part.given;
    if (!choice.name.empty()) given.emplace(part.selector.key, choice.name);
    for (const auto& [key, value] : choice.options) given.emplace(key, value);
  }
  return given;
}

Expected<void> add_answer(Recording& recording, const Generation& generation) {
  DLLM_TRY(CommitSchedule schedule, schedule_of(generation));
  const ResolvedOptions& options = generation.options;
  if (recording.answers.empty()) {
    // A default of the recorded model, which need not be the default of another.
    recording.options.mode.name = options.mode.name;
    recording.length = options.length;
    recording.block_length = options.block_length;
  } else if (options.length != recording.length || options.block_length != recording.block_length) {
    return Error{ErrorCode::kUsage, "answers of one recording have one length and one block length", "", ""};
  } else if (schedule.passes.empty() != recording.answers.front().passes.empty()) {
    return Error{ErrorCode::kUsage, "answers of one recording are all of methods that revise tokens, or none", "", ""};
  }
  recording.answers.push_back({.prompt_tokens = generation.stats.prompt_tokens,
                               .answer_tokens = generation.stats.answer_tokens,
                               .stops = schedule.stop.has_value(),
                               .nfe = generation.stats.nfe,
                               .rows_forwarded = generation.stats.rows_forwarded,
                               .rows_scored = generation.stats.rows_scored,
                               .commit_step = std::move(schedule.pass_of),
                               .passes = std::move(schedule.passes)});
  return {};
}

std::vector<std::int32_t> commit_steps(const std::vector<PassRecord>& passes, std::int32_t length) {
  std::vector<std::int32_t> steps(to_size(length), -1);
  for (std::size_t pass = 0; pass < passes.size(); ++pass)
    for (const auto* const changes : {&passes[pass].changes, &passes[pass].merged})
      for (const PassChange& change : *changes) steps[to_size(change.position)] = static_cast<std::int32_t>(pass);
  return steps;
}

}  // namespace dllm
