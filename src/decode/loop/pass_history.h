#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "decode/canvas.h"
#include "decode/decoder/decoder.h"

namespace dllm {

/// What the last pass predicted, and how long ago the tokens of a canvas were committed: for cache policies.
class PassHistory {
 public:
  /// Before the first pass.
  explicit PassHistory(const Canvas& canvas);

  /// A pass has made these predictions, by ascending position. Copies them, without `queried` and `top`.
  void predict(std::span<const Candidate> candidates);
  /// The pass has changed the canvas, whose size stays.
  void end_pass(const Canvas& canvas);

  std::span<const Candidate> predicted() const { return predicted_; }
  /// By position: passes made since the one that committed or changed its token; -1: a mask, or the prompt.
  std::span<const std::int32_t> ages() const { return ages_; }

 private:
  struct Shown {
    TokenId token;
    bool masked;
    friend bool operator==(const Shown&, const Shown&) = default;
  };
  std::vector<Candidate> predicted_;
  std::vector<Shown> shown_;  ///< by position, after the last pass
  std::vector<std::int32_t> ages_;
};

}  // namespace dllm
