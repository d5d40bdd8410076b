#include "app/bench/workload.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/integers.h"
#include "base/try.h"
#include "engine/resolve.h"

namespace dllm::app {

std::vector<TokenId> bench_prompt(const ModelDesc& desc, std::uint64_t seed, std::size_t index, Position tokens) {
  std::vector<TokenId> prompt;
  for (Position p = 0; p < tokens; ++p) prompt.push_back(bench_token(desc, seed + index, p));
  return prompt;
}

Expected<BenchRequests> recorded_workload(const ModelDesc& desc, const ReplayRequest& request) {
  DLLM_TRY(const Recording recording, read_recording(request.file));
  if (recording.options.mode.name.empty() && !desc.modes.empty())
    return Error{ErrorCode::kUsage, "recorded with a model of one way of decoding, and this one has several",
                 request.file, "give a recording of a mode: dllm eval --record with such a model"};
  BenchRequests workload;
  workload.file = request.file;
  workload.preset = recording.options.preset;
  const std::int32_t length = request.positions > 0 ? request.positions : recording.length;
  GenerateOptions options = recording.replay_options(length);
  options.seed = request.seed;
  DLLM_TRY(workload.options, resolve_options(options, desc));
  // The recorded blocks begin at the prompt's end. On a grid from position 0 this requires a prompt of whole blocks.
  const bool grid = workload.options.block_origin == "absolute";
  const std::int32_t block = recording.block_length;
  if (grid && request.prompt_tokens % block != 0)
    return Error{ErrorCode::kUsage,
                 fmt::format("a prompt of {} tokens would shift the recorded blocks", request.prompt_tokens),
                 "--prompt-tokens",
                 fmt::format("blocks of this model begin at multiples of {}: give one, or leave it out", block)};
  for (const std::size_t answer : recording.spread(static_cast<std::size_t>(request.answers))) {
    DLLM_TRY(CommitSchedule schedule, recording.schedule(answer, length));
    Position tokens = request.prompt_tokens > 0 ? request.prompt_tokens : recording.answers[answer].prompt_tokens;
    if (grid) tokens = static_cast<Position>(round_up(tokens, block));
    workload.prompts.push_back(bench_prompt(desc, workload.options.seed, workload.prompts.size(), tokens));
    workload.replays.push_back(std::move(schedule));
    workload.recorded_answers.push_back(answer);
  }
  return workload;
}

CommitSchedule even_schedule(Position length, Position block, Position per_pass) {
  CommitSchedule schedule;
  const Position passes = (block + per_pass - 1) / per_pass;  // of a whole block
  for (Position p = 0; p < length; ++p) schedule.pass_of.push_back(p / block * passes + p % block / per_pass);
  return schedule;
}

nlohmann::ordered_json replay_json(const BenchRequests& workload) {
  return {{"file", workload.file}, {"answers", workload.recorded_answers}};
}

}  // namespace dllm::app
