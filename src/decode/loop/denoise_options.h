#pragma once

#include <cstdint>
#include <vector>

#include "backend/kv_cache.h"
#include "backend/latency_table.h"
#include "base/rng.h"
#include "base/types.h"
#include "decode/loop/constraint_guide.h"
#include "decode/loop/second_path.h"
#include "decode/loop/soft_masks.h"
#include "decode/loop/token_penalties.h"
#include "decode/window/suffix.h"
#include "dllm/options.h"

namespace dllm {

struct DenoiseOptions {
  bool exact_length = false;  ///< no stop at stop_ids
  std::vector<TokenId> stop_ids;
  Sampling sampling{};
  PenaltyConfig penalties{};  ///< not with a second path
  float cfg_scale = 0;
  RngKey rng;
  bool suppress_eos = false;
  bool defer_eos = false;
  bool compat = false;
  const LatencyTable* latency = nullptr;  ///< borrowed, for policies; nullptr: unknown
  Suffix suffix{};
  SmoothConfig smooth{};
  ConstraintConfig constraint{};  ///< the window must not draft, and the decoder commits its candidates only
  SecondPathConfig second{};      ///< for decoders with a Reviser; not under guidance
  /// As large as the sequence's own cache, for decoders with guesses() or variants(): as many as it names at most.
  /// Borrowed.
  std::vector<KvCache*> branches{};
};

}  // namespace dllm
