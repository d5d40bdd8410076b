#pragma once

#include <memory>

#include "decode/decoder/decoder.h"
#include "decode/decoder/replay_decoder.h"
#include "decode/mode/mode.h"
#include "dllm/error.h"
#include "dllm/generate.h"
#include "model/model_desc.h"

namespace dllm {

/// When a finished generation committed each position. Errors: kUsage for what a schedule cannot express: guidance (a
/// step is two passes), stop texts; kCancelled.
Expected<CommitSchedule> schedule_of(const Generation& generation);

/// Whether answers with `resolved` can follow a schedule. `own`: the decoder that is replaced. Errors: kUsage.
Expected<void> check_replay(const ModelDesc& desc, const ResolvedOptions& resolved, const Decoder& own,
                            const CommitSchedule& schedule);

/// Whether rounds of this mode can: a draft of several passes depends on predictions. Errors: kUsage.
Expected<void> check_mode_replay(const ModeConfig& mode, const CommitSchedule& schedule);

/// Replaces a decoder by the one that repeats what it did. `second`: there is a second path. Errors: those of
/// check_replay(); kUsage, kUnsupported for a second path that cannot be repeated.
Expected<void> begin_replay(const ModelDesc& desc, const ResolvedOptions& resolved, const CommitSchedule& schedule,
                            bool second, std::unique_ptr<Decoder>& decoder);

/// Whether a replay followed its schedule. Errors: kMismatch, with the first position that differs.
Expected<void> check_replayed(const Generation& replayed, const CommitSchedule& schedule);

/// ... with the same passes and rows. Errors: kMismatch.
Expected<void> check_same_work(const Generation& replayed, const Generation& recorded);

}  // namespace dllm
