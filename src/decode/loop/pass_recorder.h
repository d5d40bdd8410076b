#pragma once

#include <optional>
#include <span>
#include <vector>

#include "decode/canvas.h"
#include "decode/loop/denoise_pass.h"
#include "dllm/pass_record.h"

namespace dllm {

/// Writes down what each pass of a method does that cannot be told from the pass that committed each position.
class PassRecorder {
 public:
  /// `on`: false records nothing. `stop_ids`: tokens that end answers.
  PassRecorder(bool on, std::vector<TokenId> stop_ids) : on_(on), stop_ids_(std::move(stop_ids)) {}

  /// Before the pass changes the canvas.
  void begin(const Canvas& canvas, const DenoisePass& pass, PositionRange window);
  void refresh(std::span<const Position> positions);  ///< launched with the pass
  void change(std::span<const Edit> edits);           ///< by the pass
  void merge(std::span<const Edit> edits);            ///< by the second path
  /// nullopt: nothing is recorded, or an edit of this answer moved other positions, which a record does not hold.
  /// `settled`: the end of what is final.
  std::optional<PassRecord> end(Position settled);

 private:
  void add(std::span<const Edit> edits, std::vector<PassChange>& changes);
  void put(const PassChange& change, TokenId token, std::vector<PassChange>& changes);

  bool on_;
  std::vector<TokenId> stop_ids_;
  Position prompt_end_ = 0;
  std::vector<TokenId> before_;  ///< tokens of the answer before the pass
  PassRecord record_;
};

}  // namespace dllm
