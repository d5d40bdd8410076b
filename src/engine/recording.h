#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decode/decoder/replay_decoder.h"
#include "dllm/error.h"
#include "dllm/generate.h"
#include "dllm/options.h"

namespace dllm {

/// One answer of a recording.
struct RecordedAnswer {
  std::int32_t prompt_tokens = 0;
  std::int32_t answer_tokens = 0;  ///< up to and including the token that ends it
  bool stops = false;              ///< a stop token was committed; false: every position was
  std::int32_t nfe = 0;
  std::int64_t rows_forwarded = 0, rows_scored = 0;
  std::vector<std::int32_t> commit_step;  ///< as in Generation
  std::vector<PassRecord> passes{};       ///< as in Generation; commit_step follows from them

  double tokens_per_pass() const { return static_cast<double>(answer_tokens) / nfe; }
};

/// Which pass committed which position in the answers of a trained model, or all that the passes did where tokens are
/// revised: `dllm eval --record` writes it, and `dllm bench --replay` replays it on other models. The format is in
/// docs/guide/benchmarking.md.
struct Recording {
  std::string program, command, model;  ///< how it was made, for people
  std::int32_t items = 0, correct = 0;  ///< answers, and how many were right
  std::int32_t length = 0, block_length = 0;
  GenerateOptions options;  ///< all others given at recording; absent ones take the defaults of the replaying model
  std::vector<RecordedAnswer> answers;

  /// Whether the mode decides tokens in their order and has no blocks (MethodTraits).
  bool in_order() const;
  /// With length and, where the method has them, block length, for a replay of `positions` positions.
  GenerateOptions replay_options(std::int32_t positions) const;
  /// Indices of `count` answers, spread evenly over the answers sorted by tokens per pass; for one: the answer nearest
  /// to the overall tokens per pass. All, if there are fewer.
  std::vector<std::size_t> spread(std::size_t count) const;
  /// The passes of an answer's first `positions` positions. Errors: kUsage unless these are whole blocks that are
  /// decided before the rest, or the mode is one that decides tokens in order. Where tokens are revised, an answer that
  /// continues after these positions ends with their last commit: later reviews of them are left out.
  Expected<CommitSchedule> schedule(std::size_t answer, std::int32_t positions) const;
};

/// The given options of a generation by key, without length, bound, block length, seed and context.
OptionMap given_options(const GenerateOptions& options);

/// Adds a finished answer. Errors: kUsage, as schedule_of(); a length or block length other than that of the others, or
/// a method whose passes are recorded in another way.
Expected<void> add_answer(Recording& recording, const Generation& generation);

/// The commit_step of an answer of `length` positions with these passes.
std::vector<std::int32_t> commit_steps(const std::vector<PassRecord>& passes, std::int32_t length);

/// JSON. `file`: for messages. Errors (kInvalidFile): not JSON, another version, an unknown or missing key, a value out
/// of range, with the place in the file.
Expected<Recording> parse_recording(std::string_view text, const std::string& file);
Expected<Recording> read_recording(const std::string& path);
std::string recording_text(const Recording& recording);

}  // namespace dllm
