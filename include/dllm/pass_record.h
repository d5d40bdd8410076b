#pragma once

#include <cstdint>
#include <vector>

namespace dllm {

/// What a pass did to a position of the answer.
struct PassChange {
  enum class Kind : std::uint8_t {
    kCommit,  ///< a mask got its token
    kRevise,  ///< a token was replaced by another
    kRemask,  ///< a token became a mask again
  };
  std::int32_t position = 0;
  Kind kind = Kind::kCommit;
  bool ends = false;  ///< the new token is one that ends answers
  friend bool operator==(const PassChange&, const PassChange&) = default;
};

/// One forward pass of a method that revises tokens, without the tokens: what it decided, and what decides its rows and
/// those of the next passes. Positions are those of the answer, ascending.
struct PassRecord {
  std::vector<std::int32_t> reviewed{};  ///< tokens that the pass judged again, besides the masks of its window
  std::vector<PassChange> changes{};
  std::vector<std::int32_t> refreshed{};  ///< tokens that the second path judges again from this pass on
  std::vector<PassChange> merged{};       ///< changes by results of the second path, merged before or after the pass
  bool held = false;                      ///< the window had no mask, and its decoder wanted another pass
  std::int32_t settled = 0;               ///< positions that were final after the pass
  friend bool operator==(const PassRecord&, const PassRecord&) = default;
};

}  // namespace dllm
