#pragma once

#include <optional>
#include <span>
#include <vector>

#include "decode/decoder.h"
#include "decode/second_path_options.h"

namespace dllm {

/// What a decoder offers besides Decoder if it goes on judging tokens that it has committed, those in front of the
/// window too (progressive revision, arXiv 2606.13740). Decoder::reviser() gives it to the loop.
class Reviser {
 public:
  virtual ~Reviser() = default;

  /// The first position whose token may still change; the canvas's size: none.
  virtual Position revisable_from(const DecodeContext& context) const = 0;

  /// The token that the model reads at a wanted position in the next pass; nullopt: the canvas's.
  virtual std::optional<TokenId> shown(Position position) const = 0;

  /// The answer [prompt, end) has no mask left. Positions that want another look before it is accepted; empty: none.
  /// Asked before each further pass.
  virtual std::vector<Position> drain(const DecodeContext& context, Position end) = 0;

  /// These passes recompute every row, as the first of a unit does.
  virtual bool drains_fully() const = 0;

  /// How refresh() is run at the same time as the dense passes; nullopt: it is not.
  virtual std::optional<SecondPathOptions> second_path() const = 0;
  /// What the second path forwards during this step's pass.
  struct Refresh {
    std::vector<Position> positions;  ///< ascending, in front of the window, not among wanted(); empty: nothing
    bool left_out = false;            ///< their rows show the mask
    bool sees_window = true;          ///< they see everything; false: what is in front of the window only
  };
  /// Asked when nothing runs on the second path.
  virtual Refresh refresh(const DecodeContext& context) = 0;
  /// Edits from what the second path saw; `queried` of a candidate is the logit of its token. Positions whose token has
  /// changed since the launch are left out.
  virtual std::vector<Edit> merge(const DecodeContext& context, std::span<const Candidate> candidates) = 0;
};

}  // namespace dllm
