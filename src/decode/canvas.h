#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/to_size.h"
#include "base/types.h"

namespace dllm {

/// A decoder's decision for one position.
enum class EditKind : std::uint8_t {
  kCommit,  ///< a masked position gets its token
  kRevise,  ///< a committed position gets another token
  kRemask,  ///< a committed position becomes a mask again
  kLeave,   ///< a masked position keeps its mask but counts as decided, as at the end of some of upstream's blocks
  /// Inserts a mask at the position. The tokens from there to Edit::end move right by one, and the last one is
  /// lost.
  kInsert,
  kDelete,  ///< removes the token; those after it, up to Edit::end, move left by one, and a mask fills the end
};

/// Whether an edit moves positions other than its own.
constexpr bool shifts(EditKind kind) { return kind == EditKind::kInsert || kind == EditKind::kDelete; }

struct Edit {
  Position position = 0;
  TokenId token = -1;
  EditKind kind = EditKind::kCommit;
  double confidence = 0;
  Position end = 0;  ///< of the range that kInsert and kDelete shift; nothing after it moves
};

/// The sequence of positions being denoised: prompt, then masks. "Masked" is a state of its own, not a token id: a
/// model may predict the mask token, and autoregressive models have none.
class Canvas {
 public:
  /// `mask`: the token shown at masked positions; -1 if the model has none (then they are never forwarded).
  Canvas(std::vector<TokenId> prompt, Position length, TokenId mask);

  Position size() const { return static_cast<Position>(tokens_.size()); }
  /// What is before it never changes: the prompt, and after extend() the answer so far.
  Position prompt_end() const { return prompt_end_; }
  /// Where the answer begins.
  Position answer_begin() const { return answer_begin_; }
  std::span<const TokenId> prompt() const { return std::span(tokens_).first(to_size(prompt_end_)); }
  TokenId mask() const { return mask_; }
  TokenId token(Position p) const { return tokens_[to_size(p)]; }
  bool masked(Position p) const { return masked_[to_size(p)] != 0; }
  Position masked_count() const { return masked_total_; }
  Position masked_count(PositionRange range) const;
  /// First masked position at or after `from`; size() if there is none.
  Position first_masked(Position from) const;

  /// Applies one edit; the length does not change. A commit of the mask token itself leaves the position masked
  /// (upstream LLaDA's wasted commit). Returns whether the canvas changed. Precondition: the position is generated, and
  /// its state allows this kind of edit.
  bool apply(const Edit& edit);

  /// The answer goes on: all that is there becomes part of what never changes, and `length` masks follow. Precondition:
  /// no mask is left.
  void extend(Position length);

 private:
  bool shift(const Edit& edit);

  std::vector<TokenId> tokens_;
  std::vector<std::uint8_t> masked_;
  Position prompt_end_;
  Position answer_begin_;
  Position masked_total_;
  TokenId mask_;
};

}  // namespace dllm
