#include "engine/replay.h"

#include <fmt/format.h>

#include <algorithm>

namespace dllm {

Expected<CommitSchedule> schedule_of(const Generation& generation) {
  if (generation.finish == FinishReason::kCancelled)
    return Error{ErrorCode::kCancelled, "the answer was not finished", "", ""};
  if (generation.options.cfg_scale != 0)
    return Error{ErrorCode::kUsage, "passes under guidance are not recorded", "--cfg-scale", "leave the option out"};
  if (!generation.options.stop.empty())
    return Error{ErrorCode::kUsage, "stop texts do not apply to replayed tokens", "--stop", "leave the option out"};
  CommitSchedule schedule{generation.commit_step};
  if (generation.finish == FinishReason::kStop) schedule.stop = generation.stats.answer_tokens - 1;
  return schedule;
}

Expected<void> check_replay(const ModelDesc& desc, const ResolvedOptions& resolved, const Decoder& own,
                            const CommitSchedule& schedule) {
  if (desc.autoregressive())
    return Error{ErrorCode::kUsage, "an autoregressive model commits one token after the other", "--replay",
                 "give a model that fills masks"};
  if (own.revises())
    return Error{ErrorCode::kUsage,
                 fmt::format("'{}' revises tokens, and a recording holds what is committed", resolved.decoder.name),
                 "--algorithm", "record a method that does not"};
  if (resolved.suffix.name == "grow")
    return Error{ErrorCode::kUsage, "how far an answer grows depends on predictions", "--suffix", "leave it out"};
  if (schedule.pass_of.size() != static_cast<std::size_t>(resolved.length))
    return Error{
        ErrorCode::kUsage,
        fmt::format("a schedule of {} positions for an answer of {}", schedule.pass_of.size(), resolved.length),
        "--replay", ""};
  if (schedule.stop && desc.stop_ids.empty())
    return Error{ErrorCode::kUsage, "the recorded answer ends early, and the model names no token that ends one",
                 "--replay", "give a model whose file does"};
  return {};
}

Expected<void> check_mode_replay(const ModeConfig& mode) {
  if (mode.mode != DecodingMode::kSelfSpeculation || mode.draft.draft_confidence == 0) return {};
  return Error{ErrorCode::kUsage, "how many passes such a draft takes depends on predictions", "--draft-confidence",
               "record drafts of one pass: leave the option out"};
}

Expected<void> check_replayed(const Generation& replayed, const CommitSchedule& schedule) {
  const auto [ours, recorded] = std::mismatch(replayed.commit_step.begin(), replayed.commit_step.end(),
                                              schedule.pass_of.begin(), schedule.pass_of.end());
  if (ours == replayed.commit_step.end()) return {};
  return Error{ErrorCode::kMismatch,
               fmt::format("position {} of the answer was committed in pass {}, and by the recording in pass {}",
                           ours - replayed.commit_step.begin(), *ours, *recorded),
               "--replay", "the windows of this method or model differ from the recorded ones"};
}

Expected<void> check_same_work(const Generation& replayed, const Generation& recorded) {
  const GenerateStats &ours = replayed.stats, &theirs = recorded.stats;
  if (ours.nfe == theirs.nfe && ours.rows_forwarded == theirs.rows_forwarded && ours.rows_scored == theirs.rows_scored)
    return {};
  return Error{ErrorCode::kMismatch,
               fmt::format("the same commits took {} passes of {} rows ({} scored), and in the recording {} of {} ({})",
                           ours.nfe, ours.rows_forwarded, ours.rows_scored, theirs.nfe, theirs.rows_forwarded,
                           theirs.rows_scored),
               "", "windows or rows of this method depend on predictions, which a recording does not hold"};
}

}  // namespace dllm
