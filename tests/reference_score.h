#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "backend/scores.h"
#include "backend/step_plan.h"
#include "numerics/hadamard.h"

namespace dllm::test {

/// op::Hadamard of a row.
inline void transform(std::vector<double>& row, std::int32_t order) {
  const Hadamard matrix = *Hadamard::create(order, 0);
  for (std::size_t i = 0; i < row.size(); i += static_cast<std::size_t>(order))
    matrix.apply(std::span(row).subspan(i, static_cast<std::size_t>(order)));
}

/// Greedy reduction over the raw distribution only; the CPU backend's tests cover sampling.
inline RowScore reference_score(const std::vector<double>& z, Position position, const ScoreRequest& request) {
  std::vector<bool> choose(z.size(), true), count(z.size(), true);
  for (const TokenRule& rule : request.rules) {
    choose[static_cast<std::size_t>(rule.token)] = rule.choose;
    count[static_cast<std::size_t>(rule.token)] = rule.count;
  }
  RowScore score;
  score.position = position;
  double best = -std::numeric_limits<double>::infinity(), largest = best, forbidden = best;
  for (std::size_t t = 0; t < z.size(); ++t) {
    if (count[t]) largest = std::max(largest, z[t]);
    if (!choose[t] && count[t]) forbidden = std::max(forbidden, z[t]);
    if (choose[t] && z[t] > best) {
      best = z[t];
      score.token = static_cast<TokenId>(t);
    }
  }
  score.logit = static_cast<float>(best);
  double total = 0;
  for (std::size_t t = 0; t < z.size(); ++t) total += count[t] ? std::exp(z[t] - largest) : 0;
  std::vector<double> p(z.size(), 0.0);
  double others = 0;
  for (std::size_t t = 0; t < z.size(); ++t) {
    if (count[t]) p[t] = std::exp(z[t] - largest) / total;
    if (p[t] > 0) score.entropy -= p[t] * std::log(p[t]);
    if (static_cast<TokenId>(t) != score.token) others += p[t];
  }
  score.confidence = p[static_cast<std::size_t>(score.token)];
  score.log_odds = std::log(score.confidence / others);
  score.overruled = forbidden > best;
  std::nth_element(p.begin(), p.begin() + 1, p.end(), std::greater<>());
  score.margin = *std::max_element(p.begin(), p.begin() + 1) - p[1];
  return score;
}

}  // namespace dllm::test
