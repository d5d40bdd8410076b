#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "backend/kept_tokens.h"
#include "backend/scores.h"
#include "backend/step_plan.h"
#include "cpu/kernels/kernel_set.h"

// From logits to scores, a chunk of the vocabulary at a time. Definitions, for one row with logits z (float32):
//
// - NaN logits are ignored, as are tokens whose rule says neither choose nor count.
// - The distribution is the softmax of z * beta over the counted tokens, beta = 1/T for kSampled with T > 0, else 1;
//   for kSampled restricted to the kept tokens and renormalised.
// - Kept tokens: see KeptTokens. Without filters all are kept, and a token that is not counted may still be chosen.
// - The prediction is the choosable token with the largest key among the kept ones: z at T = 0, z/T + gumbel above. If
//   no kept token may be chosen it is the choosable token with the largest logit. `overruled`: a kept token that may
//   not be chosen had a larger key.
//
// Sums run in float64 without the arg-max, so that log-odds and entropy lose nothing to cancellation.

namespace dllm::cpu {

inline constexpr TokenId kNoToken = -1;
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// What all rows of a request share.
struct ReductionSpec {
  explicit ReductionSpec(const ScoreRequest& request, std::int64_t vocab);

  ScoreRequest request;  ///< rules merged per token, ascending
  bool draws = false;    ///< T > 0
  KeptTokens kept;
  std::int64_t list = 0;    ///< best tokens to collect per row, 0: none
  double beta[2] = {1, 1};  ///< inverse temperatures of the two sums
  int sums = 1;
  int mass_sum = 0;  ///< which sum is the mass that `kept` refers to
};

/// Sums of exponentials relative to the largest logit, which is excluded.
struct Tail {
  double rest = 0;      ///< sum of e^d, d = beta (z - max)
  double weighted = 0;  ///< sum of d e^d
};

/// The state of a reduction over some of the tokens.
struct Partial {
  TopToken top{kNoToken, kMinusInfinity};     ///< counted
  TopToken second{kNoToken, kMinusInfinity};  ///< counted
  Tail tail[2];
  struct Choice {
    TokenId token = kNoToken;
    float logit = kMinusInfinity;
    double key = -std::numeric_limits<double>::infinity();
  };
  Choice chosen;  ///< among the choosable
  Choice winner;  ///< with the forbidden but counted
};

/// Adds `b` to `a`. Called in ascending order of chunks, which fixes the rounding.
void merge(const ReductionSpec& spec, const Partial& b, Partial& a);

/// Reduces tokens [first, first + logits.size()). `logits` is used as scratch. `position` keys the draws.
Partial reduce_chunk(const KernelSet& kernels, const ReductionSpec& spec, Position position, TokenId first,
                     std::span<float> logits);

/// Rules that a chunk is reduced with at once; chunks with more are split at the next one.
inline constexpr int kChunkRules = 16;

/// What a device makes of a chunk without rules and draws: its best two tokens, and the sums by exp_sums() and beta[0].
struct ReducedChunk {
  TopToken top{kNoToken, kMinusInfinity};
  TopToken second{kNoToken, kMinusInfinity};
  Tail tail;
};
/// The partial that reduce_chunk() would give, for tokens [first, end) with at most kChunkRules rules. `ruled`: the
/// logit of each rule's token, in their order.
Partial add_rules(const ReductionSpec& spec, Position position, TokenId first, TokenId end, const ReducedChunk& chunk,
                  std::span<const float> ruled);

/// The best tokens so far, as a heap whose front is the worst kept one.
class TopList {
 public:
  TopList(TopToken* storage, std::int64_t capacity, std::int32_t* size)
      : storage_(storage), capacity_(capacity), size_(size) {}
  void offer(const KernelSet& kernels, TokenId first, std::span<const float> logits);

 private:
  TopToken* storage_;
  std::int64_t capacity_;
  std::int32_t* size_;
};

/// The mass that KeptTokens asks for.
double kept_mass(const ReductionSpec& spec, const Partial& all);

/// The scores of a row without filters.
RowScore finish(const ReductionSpec& spec, Position position, const Partial& all);
/// The scores of a row whose kept tokens are `kept`, best first.
RowScore finish_filtered(const ReductionSpec& spec, Position position, const Partial& all,
                         std::span<const TopToken> kept);

}  // namespace dllm::cpu
