#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/bench/bench.h"
#include "decode/decoder/replay_decoder.h"
#include "engine/recording.h"

namespace dllm::app {

/// The requests of a generation benchmark.
struct BenchRequests {
  ResolvedOptions options;
  std::vector<std::vector<TokenId>> prompts;
  std::vector<CommitSchedule> replays;        ///< one per prompt; empty: the method chooses
  std::string file;                           ///< of the recording that is replayed; empty: none
  std::string preset;                         ///< used for the recording
  std::vector<std::size_t> recorded_answers;  ///< the answers of it that are replayed
};

/// Random tokens of the seed, different for each `index`.
std::vector<TokenId> bench_prompt(const ModelDesc& desc, std::uint64_t seed, std::size_t index, Position tokens);

/// Which part of a recording to use.
struct ReplayRequest {
  std::string file;
  std::int32_t answers = 1;        ///< spread over the recording
  std::int32_t positions = 0;      ///< of an answer; 0: the recorded length
  std::int32_t prompt_tokens = 0;  ///< 0: as recorded, in whole blocks where the model's blocks begin at position 0
  std::optional<std::uint64_t> seed{};
};

/// Errors: those of read_recording(); kUsage, as Recording::schedule(); a prompt that would shift the blocks; options
/// that do not suit the model.
Expected<BenchRequests> recorded_workload(const ModelDesc& desc, const ReplayRequest& request);

/// `per_pass` positions are committed in each pass, from left to right, never across the end of a block.
CommitSchedule even_schedule(Position length, Position block, Position per_pass);

/// {"file": …, "answers": […]}: a record's description of the recording.
nlohmann::ordered_json replay_json(const BenchRequests& workload);

}  // namespace dllm::app
