#pragma once

#include <algorithm>
#include <utility>

#include "decode/decoder/decoder.h"

namespace dllm {

template <class Key>
std::vector<Edit> commit_best(std::span<const Candidate> candidates, std::size_t count, Key key) {
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

}  // namespace dllm
