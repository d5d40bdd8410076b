#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/to_size.h"
#include "decode/decoder/decoder.h"
#include "decode/loop/pass_replay.h"
#include "dllm/pass_record.h"
#include "model/model_desc.h"

namespace dllm {

/// Which pass commits which position of an answer, recorded from a finished generation.
struct CommitSchedule {
  std::vector<std::int32_t> pass_of;  ///< by position of the answer: forward pass from 0; -1: never committed
  std::optional<Position> stop{};     ///< position of the answer that gets a stop token
  /// All that the passes did, of methods that do more than commit each position once; empty: the rest tells it.
  std::vector<PassRecord> passes{};
  friend bool operator==(const CommitSchedule&, const CommitSchedule&) = default;
};

/// What the passes of a replay commit: the positions of the schedule, whatever is predicted. Tokens are the predicted
/// ones, unless they would end the answer at another place than the schedule does. Precondition: a schedule with a stop
/// needs a model that has stop tokens.
class ScheduledCommits {
 public:
  ScheduledCommits(CommitSchedule schedule, const ModelDesc& desc);

  /// The pass that commits a position of the answer; -1: none does.
  std::int32_t pass_of(Position p) const {
    return p < static_cast<Position>(schedule_.pass_of.size()) ? schedule_.pass_of[to_size(p)] : -1;
  }
  /// The token committed there.
  TokenId token_at(Position p, TokenId predicted) const;
  /// Commits of the candidates that belong to a pass. `prompt_end`: where the answer begins.
  std::vector<Edit> edits(std::int32_t pass, Position prompt_end, std::span<const Candidate> candidates) const;
  std::int32_t last_pass() const { return last_; }

 private:
  CommitSchedule schedule_;
  std::vector<TokenId> stop_ids_;
  ReplayTokens tokens_;
  std::int32_t last_ = -1;
};

/// A decoder that wants what `own` wants and commits what the schedule says, whatever is predicted. So every pass
/// has the rows, the scored rows and the reduction of the method; only the choice is not the model's. A scheduled
/// position that is not wanted is left to the progress rule, so that the loop ends; the schedule of the finished
/// answer then differs. With CommitSchedule::passes, make_pass_replay()'s. Preconditions: `own` does not revise, or
/// there are passes; that of ScheduledCommits.
std::unique_ptr<Decoder> make_replay_decoder(std::unique_ptr<Decoder> own, CommitSchedule schedule,
                                             const ModelDesc& desc);

}  // namespace dllm
