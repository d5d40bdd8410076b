#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "cpu/cpu_backend.h"
#include "model/model.h"
#include "ranks/testing/local_group.h"

namespace dllm::test {

/// What a script of steps gave, one after the other.
using Trace = std::vector<Scores>;
/// Runs steps on a backend; the same on every rank.
using Script = std::function<Trace(Backend&)>;

inline Trace run_alone(const Model& model, const Script& script, CpuOptions options = {}) {
  options.threads = options.threads == 0 ? 1 : options.threads;
  auto backend =
      CpuBackend::create(model.desc(), [&](StepShape shape) { return model.build(shape); }, model.weights(), options);
  if (!backend) throw std::runtime_error(backend.error().message());
  return script(**backend);
}

/// The trace of every rank, each on a thread of its own.
inline std::vector<Trace> run_on_ranks(const Model& model, const Script& script, int ranks, SplitKind split,
                                       CpuOptions options = {}) {
  options.threads = options.threads == 0 ? 1 : options.threads;
  options.split = split;
  const auto group = local_group(ranks);
  std::vector<Trace> traces(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      CpuOptions own = options;
      own.ranks = group[static_cast<std::size_t>(rank)].get();
      auto backend =
          CpuBackend::create(model.desc(), [&](StepShape shape) { return model.build(shape); }, model.weights(), own);
      if (!backend) {
        ADD_FAILURE() << backend.error().message();
        group[static_cast<std::size_t>(rank)]->abort("no backend");
        return;
      }
      traces[static_cast<std::size_t>(rank)] = script(**backend);
    });
  for (std::thread& thread : threads) thread.join();
  return traces;
}

/// The first difference; empty: none. Numbers are compared by their bits.
inline std::string difference(const Trace& a, const Trace& b) {
  const auto same = [](const auto& x, const auto& y) { return std::memcmp(&x, &y, sizeof x) == 0; };
  const auto all_same = [&](const auto& x, const auto& y) {
    if (x.size() != y.size()) return false;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (!same(x[i], y[i])) return false;
    return true;
  };
  if (a.size() != b.size()) return "another number of scores";
  for (std::size_t s = 0; s < a.size(); ++s) {
    const std::string at = " of step " + std::to_string(s);
    if (!all_same(a[s].logits, b[s].logits)) return "logits" + at;
    if (!all_same(a[s].queried, b[s].queried)) return "queries" + at;
    if (!all_same(a[s].hidden, b[s].hidden)) return "hidden states" + at;
    if (!all_same(a[s].top, b[s].top)) return "top tokens" + at;
    if (a[s].rows.size() != b[s].rows.size()) return "rows" + at;
    for (std::size_t r = 0; r < a[s].rows.size(); ++r) {
      const RowScore &x = a[s].rows[r], &y = b[s].rows[r];
      if (x.position != y.position || x.token != y.token || x.overruled != y.overruled || !same(x.logit, y.logit) ||
          !same(x.confidence, y.confidence) || !same(x.log_odds, y.log_odds) || !same(x.margin, y.margin) ||
          !same(x.entropy, y.entropy))
        return "row " + std::to_string(r) + at;
    }
  }
  return "";
}

/// Every split over these numbers of ranks gives the trace of one process, on every rank.
inline void expect_same_bits(const Model& model, const Script& script, const std::vector<int>& numbers,
                             const std::string& what, const CpuOptions& options = {},
                             const std::vector<SplitKind>& splits = {SplitKind::kOutputs, SplitKind::kRows,
                                                                     SplitKind::kLayers}) {
  const Trace expected = run_alone(model, script, options);
  ASSERT_FALSE(expected.empty());
  for (const SplitKind split : splits)
    for (const int ranks : numbers) {
      const std::vector<Trace> traces = run_on_ranks(model, script, ranks, split, options);
      for (std::size_t rank = 0; rank < traces.size(); ++rank)
        EXPECT_EQ(difference(expected, traces[rank]), "")
            << what << ", split " << static_cast<int>(split) << ", rank " << rank << " of " << ranks;
    }
}

}  // namespace dllm::test
