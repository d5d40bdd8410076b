#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dllm/options.h"
#include "dllm/pass_record.h"

namespace dllm {

/// The state of one position of the canvas after a step.
struct CanvasCell {
  std::int32_t token = 0;
  bool masked = false;
  bool changed = false;   ///< by this step
  double confidence = 0;  ///< at its commit; 1 for the prompt
};

/// One denoising step, as every listener sees it (terminal, server, Python, trace).
struct StepEvent {
  std::int32_t step = 0;         ///< 0-based count of steps
  std::int32_t nfe = 0;          ///< forward passes so far
  std::int32_t block_begin = 0;  ///< the window being decoded
  std::int32_t block_end = 0;
  std::int32_t prompt_length = 0;
  std::int32_t masked = 0;         ///< masked positions left in the canvas
  std::vector<CanvasCell> canvas;  ///< prompt and answer
  std::string text;                ///< the final prefix of the answer so far
};

/// Return false to stop: the result then holds the tokens committed so far.
using StepCallback = std::function<bool(const StepEvent&)>;

/// Time and work of a generation.
struct GenerateStats {
  std::int32_t prompt_tokens = 0;
  std::int32_t answer_tokens = 0;     ///< up to and including the stop token
  std::int32_t committed_tokens = 0;  ///< positions decided
  std::int32_t steps = 0;
  std::int32_t nfe = 0;            ///< forward passes (a guided step counts two)
  std::int32_t forced = 0;         ///< steps in which only the progress rule committed a token
  std::int32_t second_passes = 0;  ///< on the second path, not counted in nfe
  std::int32_t rounds = 0;         ///< drafts that were verified (self-speculation)
  std::int32_t round_tokens = 0;   ///< tokens that they brought, the one behind the accepted drafts included
  std::int64_t rows_forwarded = 0;
  std::int64_t rows_scored = 0;
  /// Of the prompt: their K/V were taken from earlier requests (SchedulerOptions::prefix_bytes).
  std::int32_t cached_tokens = 0;
  double seconds = 0;  ///< of its passes; of those that it shares with other answers, its share. Without callbacks
};

/// Virtual seconds by cause (docs/design/npu-answers.md); they sum to seconds().
struct VirtualParts {
  double array = 0, vector = 0, memory = 0;  ///< of the device's units
  double dispatch = 0;                       ///< of operators by the host
  double staging = 0;                        ///< waiting for mappings
  double host = 0;                           ///< work of the host's processor
  double contention = 0;                     ///< lost to the second path's use of memory
  double refresh = 0;                        ///< waiting for the second path
  double seconds() const { return array + vector + memory + dispatch + staging + host + contention + refresh; }
  VirtualParts& operator+=(const VirtualParts& other) {
    array += other.array, vector += other.vector, memory += other.memory;
    dispatch += other.dispatch, staging += other.staging, host += other.host;
    contention += other.contention, refresh += other.refresh;
    return *this;
  }
};

/// Joules by consumer; they sum to joules().
struct VirtualEnergy {
  double compute = 0, dram = 0, standby = 0;
  double host_active = 0, host_idle = 0;
  double joules() const { return compute + dram + standby + host_active + host_idle; }
  VirtualEnergy& operator+=(const VirtualEnergy& other) {
    compute += other.compute, dram += other.dram, standby += other.standby;
    host_active += other.host_active, host_idle += other.host_idle;
    return *this;
  }
};

/// A forward pass on a simulated device.
struct VirtualStep {
  std::int32_t rows = 0, scored = 0;
  std::int32_t keys = 0;  ///< positions that the rows see
  VirtualParts parts;
  VirtualEnergy energy;
  double rise_kelvin = 0;  ///< of the device at its end, above the surroundings; 0 without a thermal limit
  bool throttled = false;  ///< it ran at the lowered clock
  bool simulated = false;  ///< its operators were timed by a cycle-accurate model
};

/// A pass of the second path on the device's host (`--refresh-path second`), at the same time as passes of the device.
struct VirtualRefresh {
  std::int32_t rows = 0, scored = 0, keys = 0;
  double start_seconds = 0, end_seconds = 0;  ///< since the answer began
};

/// An answer in the virtual time of a simulated device.
struct VirtualTime {
  std::string device;
  std::vector<VirtualStep> steps;  ///< one per forward pass, and per reading of hidden states by a drafter
  std::vector<VirtualRefresh> refreshes;
  double prompt_seconds = 0;       ///< of the first pass, which computes the prompt, and a drafter's reading of it
  double first_block_seconds = 0;  ///< until the first block of the answer was decided
  VirtualParts parts;              ///< of all steps
  VirtualEnergy energy;
  std::string unsimulated;  ///< why steps that were to be simulated were not, of the first such step; empty: none was
};

enum class FinishReason { kStop, kLength, kCancelled };

/// A finished generation.
struct Generation {
  std::string text;  ///< answer without control tokens, up to the first stop token
  std::vector<std::int32_t> prompt_ids;
  std::vector<std::int32_t> ids;          ///< whole generated span; undecided positions hold the mask id (or -1)
  std::vector<std::int32_t> commit_step;  ///< forward pass (from 0) that decided each position; -1: none
  /// One per forward pass of methods that revise tokens or accept drafts at once, for LanguageModel::replay(); empty:
  /// commit_step tells it, or the method moves tokens to other positions.
  std::vector<PassRecord> passes;
  std::vector<double> confidence;  ///< at the commit
  FinishReason finish = FinishReason::kLength;
  std::vector<std::string> slots;  ///< what was found for each gap of ScheduledRequest::form; empty: no form
  std::string stop_text;           ///< the one of GenerateOptions::stop that ended the answer; empty: none
  GenerateStats stats;
  ResolvedOptions options;                  ///< that were used
  std::uint64_t hash = 0;                   ///< FNV-1a of the answer ids, for comparisons
  std::optional<VirtualTime> virtual_time;  ///< only of single answers on a simulated device
};

/// Called with the index of a request and its answer. Return false to stop.
using AnswerCallback = std::function<bool(std::size_t, const Generation&)>;

}  // namespace dllm
