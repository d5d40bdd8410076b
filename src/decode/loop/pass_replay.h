#pragma once

#include <memory>
#include <vector>

#include "decode/decoder/decoder.h"
#include "dllm/pass_record.h"
#include "model/model_desc.h"

namespace dllm {

/// Tokens for a replay: the predicted one wherever it has the part that the recorded one had.
class ReplayTokens {
 public:
  explicit ReplayTokens(const ModelDesc& desc);

  /// A token that ends answers or does not, as `ends` says, and is not `current`. If no token that ends answers
  /// remains, the first of them; none at all: an ordinary one.
  TokenId choose(TokenId predicted, bool ends, TokenId current = -1) const;

 private:
  bool stops(TokenId token) const;

  std::vector<TokenId> stop_ids_;
  std::optional<TokenId> mask_;
  TokenId ordinary_[2] = {-1, -1};  ///< neither the mask nor among the stop tokens
};

/// A decoder that does in each pass what was recorded of one that revises tokens, whatever is predicted: it asks for
/// the same positions, makes the same edits, and holds windows, drains and refreshes as recorded. `own`, the decoder
/// that was recorded, says what the predictions contain and which masks are wanted. Records that do not fit the canvas
/// are left out, so that the loop ends; the records of the finished answer then differ.
std::unique_ptr<Decoder> make_pass_replay(std::unique_ptr<Decoder> own, std::vector<PassRecord> passes,
                                          const ModelDesc& desc);

}  // namespace dllm
