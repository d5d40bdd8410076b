#pragma once

#include "decode/decoder.h"
#include "decode/replay_decoder.h"
#include "dllm/error.h"
#include "dllm/generate.h"
#include "model/model_desc.h"

namespace dllm {

/// What a finished generation committed when. Errors: kUsage for what a schedule cannot tell: guidance (a step is two
/// passes), texts that end an answer; kCancelled.
Expected<CommitSchedule> schedule_of(const Generation& generation);

/// Whether answers of `resolved` can follow a schedule. `own`: the decoder that it takes the place of. Errors: kUsage.
Expected<void> check_replay(const ModelDesc& desc, const ResolvedOptions& resolved, const Decoder& own,
                            const CommitSchedule& schedule);

/// Whether a replay did what its schedule says. Errors: kMismatch, with the first position that differs.
Expected<void> check_replayed(const Generation& replayed, const CommitSchedule& schedule);

/// ... with as many passes and rows. Errors: kMismatch.
Expected<void> check_same_work(const Generation& replayed, const Generation& recorded);

}  // namespace dllm
