#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "decode/decoder.h"
#include "model/model_desc.h"

namespace dllm {

/// Which pass commits which position of an answer, recorded from a finished generation.
struct CommitSchedule {
  std::vector<std::int32_t> pass_of;  ///< by position of the answer: forward pass from 0; -1: never committed
  std::optional<Position> stop{};     ///< position of the answer that gets a stop token
  friend bool operator==(const CommitSchedule&, const CommitSchedule&) = default;
};

/// A decoder that wants what `own` wants and commits what the schedule says, whatever is predicted. So every pass
/// has the rows, the scored rows and the reduction of the method; only the choice is not the model's. Tokens are
/// the predicted ones, unless they would end the answer at another place than the schedule does. A scheduled
/// position that is not wanted is left to the progress rule, so that the loop ends; the schedule of the finished
/// answer then differs. Preconditions: `own` does not revise; a schedule with a stop needs a model that has stop
/// tokens.
std::unique_ptr<Decoder> make_replay_decoder(std::unique_ptr<Decoder> own, CommitSchedule schedule,
                                             const ModelDesc& desc);

}  // namespace dllm
