#pragma once

#include <optional>
#include <span>
#include <vector>

#include "decode/decoder/decoder.h"
#include "decode/loop/second_path_options.h"

namespace dllm {

/// The additional interface of decoders that keep reviewing tokens they have committed, including those before the
/// window (progressive revision, arXiv 2606.13740). Decoder::reviser() returns it.
class Reviser {
 public:
  virtual ~Reviser() = default;

  /// The first position whose token may still change; the canvas's size: none.
  virtual Position first_revisable(const DecodeContext& context) const = 0;

  /// The token that the model reads at a wanted position in the next pass; nullopt: the canvas's.
  virtual std::optional<TokenId> shown(Position position) const = 0;

  /// True if rows of tokens that are reviewed before the window, or when no mask is left, show the mask: shown().
  virtual bool hides_reviewed() const = 0;

  /// Called when the answer [prompt, end) has no mask left, before each further pass. Positions that need another
  /// review before it is accepted; empty: none.
  virtual std::vector<Position> drain(const DecodeContext& context, Position end) = 0;

  /// Whether these passes recompute every row, like the first of a unit.
  virtual bool drains_fully() const = 0;

  /// How refresh() runs concurrently with the dense passes; nullopt: it does not.
  virtual std::optional<SecondPathOptions> second_path() const = 0;
  /// What the second path forwards during this step's pass.
  struct Refresh {
    std::vector<Position> positions;  ///< ascending, before the window, not among wanted(); empty: nothing
    bool left_out = false;            ///< their rows show the mask
    bool sees_window = true;          ///< they see everything; false: only what is before the window
  };
  /// Called when nothing runs on the second path.
  virtual Refresh refresh(const DecodeContext& context) = 0;
  /// Edits from the second path's results; `queried` of a candidate is the logit of its token. Positions whose token
  /// has changed since the launch are left out.
  virtual std::vector<Edit> merge(const DecodeContext& context, std::span<const Candidate> candidates) = 0;
};

}  // namespace dllm
