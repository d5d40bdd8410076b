#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/linear.h"
#include "cpu/score_head.h"

namespace dllm::cpu::test {

/// Runs the head on given logits: one input column per row, weights = logits, inputs = unit vectors. Rows with values
/// that are not finite must come alone, since 0 * inf is NaN.
class HeadFixture {
 public:
  explicit HeadFixture(int threads = 1) : pool_(threads), linear_(*default_kernel_set(), pool_) {}

  /// rows[r] are the logits of row r, at position 10 + r.
  std::vector<Scores> run(const std::vector<std::vector<float>>& rows, std::vector<SequenceStep> batch) {
    const auto vocab = static_cast<std::int64_t>(rows[0].size()), k = static_cast<std::int64_t>(rows.size());
    std::vector<float> weight(static_cast<std::size_t>(vocab * k));
    for (std::size_t r = 0; r < rows.size(); ++r)
      for (std::size_t t = 0; t < rows[r].size(); ++t) weight[t * rows.size() + r] = rows[r][t];
    ScoreHead head(*default_kernel_set(), pool_, linear_);
    head.arrange(batch, vocab);
    std::vector<float> x(head.gather().size() * rows.size(), 0.f);
    for (std::size_t i = 0; i < head.gather().size(); ++i)
      x[i * rows.size() + static_cast<std::size_t>(head.gather()[i])] = 1.f;
    WeightView view{TensorType::kF32, {k, vocab}, std::as_bytes(std::span(weight))};
    std::vector<Scores> scores(batch.size());
    linear_.forget();
    const LinearArgs args =
        linear_.prepare(view, nullptr, nullptr, x.data(), static_cast<std::int64_t>(head.gather().size()), 0);
    head.run(args, vocab, scores);
    return scores;
  }

  Scores run(const std::vector<std::vector<float>>& rows, const ScoreRequest& request) {
    std::vector<SequenceStep> batch(1);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      batch[0].plan.rows.push_back({static_cast<Position>(10 + r), 0});
      batch[0].plan.scored.push_back(static_cast<std::int32_t>(r));
    }
    batch[0].request = request;
    return run(rows, std::move(batch))[0];
  }

 private:
  ThreadPool pool_;
  LinearRunner linear_;
};

}  // namespace dllm::cpu::test
