#include "engine/replay.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/to_size.h"
#include "base/try.h"
#include "decode/registry.h"
#include "engine/method.h"

namespace dllm {
namespace {

bool ends_answer(const CommitSchedule& schedule) {
  const auto ends = [](const PassChange& change) { return change.ends; };
  return schedule.stop || std::ranges::any_of(schedule.passes, [&](const PassRecord& pass) {
           return std::ranges::any_of(pass.changes, ends) || std::ranges::any_of(pass.merged, ends);
         });
}

/// The first pass that did not do what was recorded.
Expected<void> check_passes(const std::vector<PassRecord>& ours, const std::vector<PassRecord>& recorded) {
  const auto [one, other] =
      std::mismatch(ours.begin(), ours.end(), recorded.begin(), recorded.end(), [](PassRecord a, PassRecord b) {
        a.settled = b.settled = 0;  // the number of passes tells when the answer was final
        return a == b;
      });
  if (one == ours.end() && other == recorded.end()) return {};
  return Error{ErrorCode::kMismatch, fmt::format("pass {} did not do what was recorded of it", one - ours.begin()),
               "--replay", "the windows of this method or model differ from the recorded ones"};
}

}  // namespace

Expected<CommitSchedule> schedule_of(const Generation& generation) {
  if (generation.finish == FinishReason::kCancelled)
    return Error{ErrorCode::kCancelled, "the answer was not finished", "", ""};
  if (generation.options.cfg_scale != 0)
    return Error{ErrorCode::kUsage, "passes under guidance are not recorded", "--cfg-scale", "leave the option out"};
  if (!generation.options.stop.empty())
    return Error{ErrorCode::kUsage, "stop texts do not apply to replayed tokens", "--stop", "leave the option out"};
  if (generation.commit_step.size() != to_size(generation.options.length))
    return Error{ErrorCode::kUsage,
                 fmt::format("the answer has {} positions, and the canvas {}: a schedule is for one canvas",
                             generation.commit_step.size(), generation.options.length),
                 "--predict", "give the length as --canvas-length"};
  CommitSchedule schedule{.pass_of = generation.commit_step, .passes = generation.passes};
  if (generation.finish == FinishReason::kStop) schedule.stop = generation.stats.answer_tokens - 1;
  return schedule;
}

Expected<void> check_replay(const ModelDesc& desc, const ResolvedOptions& resolved, const Decoder& own,
                            const CommitSchedule& schedule) {
  if (desc.autoregressive())
    return Error{ErrorCode::kUsage, "an autoregressive model commits one token after the other", "--replay",
                 "give a model that fills masks"};
  if (own.revises() && schedule.passes.empty())
    return Error{ErrorCode::kUsage,
                 fmt::format("'{}' changed tokens in a way that a recording does not hold", resolved.decoder.name),
                 "--algorithm", "record a method that inserts and deletes none, without --compat"};
  if (traits_of(suffixes(), resolved.suffix).grows)
    return Error{ErrorCode::kUsage, "how far an answer grows depends on predictions", "--suffix",
                 "give --canvas-length, or --suffix full"};
  if (traits_of(decoders(), resolved.decoder).shadows)
    return Error{ErrorCode::kUsage,
                 fmt::format("a recording does not hold the tokens that '{}' judged", resolved.decoder.name),
                 "--algorithm", "record with another algorithm"};
  if (traits_of(decoders(), resolved.decoder).branches > 0)
    return Error{ErrorCode::kUsage,
                 fmt::format("a recording does not hold the passes that '{}' guessed", resolved.decoder.name),
                 "--algorithm", "record with the algorithm whose passes it guesses"};
  if (traits_of(decoders(), resolved.decoder).checks > 0 || traits_of(decoders(), resolved.decoder).soft)
    return Error{ErrorCode::kUsage,
                 fmt::format("a recording does not hold what the passes of '{}' read", resolved.decoder.name),
                 "--algorithm", "record with another algorithm"};
  if (traits_of(caches(), resolved.cache).asks_predictions)
    return Error{ErrorCode::kUsage,
                 fmt::format("which rows '{}' recomputes depends on predictions, which a recording does not hold",
                             resolved.cache.name),
                 "--cache", "record with another cache policy"};
  if (schedule.pass_of.size() != to_size(resolved.length))
    return Error{
        ErrorCode::kUsage,
        fmt::format("a schedule of {} positions for an answer of {}", schedule.pass_of.size(), resolved.length),
        "--replay", ""};
  if (ends_answer(schedule) && desc.stop_ids.empty())
    return Error{ErrorCode::kUsage, "the recorded answer has its end, and the model names no token that ends one",
                 "--replay", "give a model whose file does"};
  return {};
}

Expected<void> begin_replay(const ModelDesc& desc, const ResolvedOptions& resolved, const CommitSchedule& schedule,
                            bool second, std::unique_ptr<Decoder>& decoder) {
  DLLM_CHECK_OK(check_replay(desc, resolved, *decoder, schedule));
  if (const auto path = second_path_of(resolved, desc)) {
    if (path->refresh_merge == SecondPathOptions::Merge::kReady)
      return Error{ErrorCode::kUsage, "when results are merged depends on the speed of the machine", "--refresh-merge",
                   "leave it out: after --merge-delay steps they are merged in every run alike"};
    if (!second)
      return Error{ErrorCode::kUnsupported, "the recorded answer has a second path, and here there is none",
                   "--refresh-path", "replay it with a backend that has one, or record without it"};
  }
  decoder = make_replay_decoder(std::move(decoder), schedule, desc);
  return {};
}

Expected<void> check_mode_replay(const ModeConfig& mode, const CommitSchedule& schedule) {
  if (!schedule.passes.empty())
    return Error{ErrorCode::kUsage, "models of several modes do not revise tokens", "--replay",
                 "give a recording of such a model"};
  if (mode.mode == DecodingMode::kSlots)
    return Error{ErrorCode::kUnsupported, "how many passes a slot takes depends on predictions", "--replay",
                 "replay answers of other models"};
  if (mode.mode != DecodingMode::kSelfSpeculation || mode.draft.draft_confidence == 0) return {};
  return Error{ErrorCode::kUsage, "how many passes such a draft takes depends on predictions", "--draft-confidence",
               "record drafts of one pass: leave the option out"};
}

Expected<void> check_replayed(const Generation& replayed, const CommitSchedule& schedule) {
  if (!schedule.passes.empty()) return check_passes(replayed.passes, schedule.passes);
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
  if (ours.nfe == theirs.nfe && ours.second_passes == theirs.second_passes &&
      ours.rows_forwarded == theirs.rows_forwarded && ours.rows_scored == theirs.rows_scored)
    return {};
  return Error{ErrorCode::kMismatch,
               fmt::format("the same commits took {} passes of {} rows ({} scored), and in the recording {} of {} ({})",
                           ours.nfe + ours.second_passes, ours.rows_forwarded, ours.rows_scored,
                           theirs.nfe + theirs.second_passes, theirs.rows_forwarded, theirs.rows_scored),
               "", "windows or rows of this method depend on predictions, which a recording does not hold"};
}

}  // namespace dllm
