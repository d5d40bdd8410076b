#include "decode/decoder/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/to_size.h"

namespace dllm {

std::vector<Position> Decoder::wanted(const DecodeContext& context) {
  std::vector<Position> result;
  for (Position p = context.window.begin; p < context.window.end; ++p)
    if (context.canvas.masked(p)) result.push_back(p);
  return result;
}

std::vector<Position> generated_positions(const DecodeContext& context) {
  std::vector<Position> result;
  for (Position p = std::max(context.window.begin, context.canvas.prompt_end()); p < context.window.end; ++p)
    result.push_back(p);
  return result;
}

double probability_of(const Candidate& candidate, float logit) {
  return candidate.confidence * std::exp(static_cast<double>(logit) - static_cast<double>(candidate.logit));
}

double probability_of_queried(const Candidate& candidate, std::size_t index) {
  return probability_of(candidate, candidate.queried[index]);
}

const Candidate* candidate_at(const DecodeContext& context, std::span<const Candidate> candidates, Position position) {
  for (const std::span<const Candidate> among : {candidates, context.shadows})
    if (const auto found = std::ranges::find(among, position, &Candidate::position); found != among.end())
      return &*found;
  return nullptr;
}

std::int32_t kv_age(const KvCache* cache, Position position) {
  if (cache == nullptr || !cache->holds(position)) return -1;
  return static_cast<std::int32_t>(cache->epoch() - cache->epoch_of(position));
}

Edit commit(const Candidate& candidate) {
  return {candidate.position, candidate.token, EditKind::kCommit, candidate.confidence};
}

std::vector<Edit> commit_best(std::span<const Candidate> candidates, std::size_t count,
                              const std::function<double(const Candidate&)>& key) {
  std::vector<std::pair<double, const Candidate*>> ranked;
  for (const Candidate& candidate : candidates)
    if (candidate.eligible) ranked.emplace_back(key(candidate), &candidate);
  // Candidates are in ascending order of position, so in a stable sort the lower position wins ties.
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  ranked.resize(std::min(count, ranked.size()));
  std::vector<Edit> edits;
  for (const auto& [rank, candidate] : ranked) edits.push_back(commit(*candidate));
  return edits;
}

std::vector<std::int32_t> transfer_schedule(std::int32_t masks, std::int32_t steps) {
  std::vector<std::int32_t> counts(to_size(steps), masks / steps);
  for (std::int32_t i = 0; i < masks % steps; ++i) ++counts[to_size(i)];
  return counts;
}

std::int32_t window_steps(std::int32_t steps, Position length, Position window_masks) {
  if (steps <= 0 || length <= 0) return std::max<Position>(1, window_masks);
  const double share = static_cast<double>(steps) * window_masks / length;
  return std::clamp<std::int32_t>(static_cast<std::int32_t>(std::lround(share)), 1,
                                  std::max<Position>(1, window_masks));
}

void leave_the_rest(const Canvas& canvas, std::span<const Candidate> candidates, std::vector<Edit>& edits) {
  for (const Candidate& candidate : candidates) {
    const auto own =
        std::find_if(edits.begin(), edits.end(), [&](const Edit& edit) { return edit.position == candidate.position; });
    if (own != edits.end() && own->token != canvas.mask()) continue;
    if (own != edits.end()) edits.erase(own);
    edits.push_back({candidate.position, canvas.mask(), EditKind::kLeave, candidate.confidence});
  }
}

}  // namespace dllm
