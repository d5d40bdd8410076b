#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/types.h"
#include "cpu/peak.h"
#include "cpu/profile.h"
#include "dllm/error.h"
#include "dllm/generate.h"
#include "dllm/model.h"
#include "engine/backends.h"
#include "model/model.h"

/// The measurements of `dllm bench`. Each passes on records as they are completed: one row of the output each, without
/// what all rows share (host, build, command).
namespace dllm::app {

struct BenchOptions {
  LoadOptions load{};
  std::vector<std::int32_t> rows{1, 8, 32, 128};
  std::vector<std::int32_t> contexts{512};  ///< visible positions, including the step's rows; at least the rows
  std::vector<std::int32_t> batches{1};     ///< sequences of a step, each with its own cache
  std::string scored = "all";               ///< all, none or a number
  std::vector<std::int32_t> prompts{};      ///< prompt tokens of a generation; empty: the measurement's default
  std::vector<std::string> replays{};       ///< recordings to replay
  std::int32_t answers = 4;                 ///< replayed from each recording
  std::vector<std::int32_t> tokens_per_pass{1, 2, 4, 8};
  GenerateOptions generate{};
  std::int32_t repetitions = 5;
  std::int32_t warmup = 1;
  bool ranks = false;                    ///< of steps: what each rank does, too
  std::vector<std::int32_t> simulate{};  ///< numbers of ranks to predict steps for
  double exchange_us = 0;                ///< of one gather between two ranks; 0: not given, `ranks` measure it
  double exchange_mbps = 0;              ///< of their connection; likewise
  bool renew_latency = false;            ///< measure the latency table even if it exists
  double min_seconds = 0.2;              ///< small models repeat until this much time is measured
};

/// Callbacks of the measurements: progress and cancellation.
struct BenchWatch {
  std::function<void(const std::string& what)> progress{};
  std::stop_token stop{};
};

/// Whether the backend is this processor's, whose peaks and operators are measured.
bool on_processor(const BackendEntry& backend);

/// A model with its own backend, and how long loading took.
struct BenchModel {
  std::string path;
  std::shared_ptr<const Model> model;
  std::unique_ptr<cpu::Profile> profile;  ///< without entries if the backend is not this processor's
  RunningBackend running;
  double open_seconds = 0;  ///< from nothing until a step could run

  /// Resets the process's resident peak, then loads.
  static Expected<BenchModel> open(const std::string& path, const LoadOptions& options);

  Backend& backend() const { return *running.backend; }

  /// path, name, architecture, parameters, bytes, type: the first fields of every record of the model.
  nlohmann::ordered_json describe() const;
};

using BenchSink = std::function<void(const nlohmann::ordered_json& record)>;

/// Peak rates to compare with.
struct ComparedPeaks {
  PeakMeter measure{};
  cpu::Peaks best{};  ///< the highest of each so far

  /// Measures once more, for `best`. Errors: the meter's.
  Expected<void> again();
};
/// Absent: no percentages.
using MaybePeaks = std::optional<ComparedPeaks>;

/// The peaks of a backend that has some (BackendEntry::peaks). `asked`: by --peak; else they are absent where they
/// cannot be measured. Errors: as BackendEntry::peaks, and the meter's.
Expected<MaybePeaks> peaks_to_compare(const BackendEntry& backend, const LoadOptions& load, bool asked);

/// Whether all layers run on what the backend's peaks are those of: with a device they may run here, or some of them.
bool runs_where_peaks_are(const BackendEntry& backend, const RunningBackend& running);

/// What a model's products multiply, and with what.
struct ProductKind {
  TensorType weights;                          ///< of most matrices
  std::string activations, arithmetic, isa{};  ///< LoadOptions::activations, and as in RunningBackend
};

/// The bound for such products.
const cpu::Peaks::Rate& bound_of(const cpu::Peaks& peaks, const ProductKind& products);

nlohmann::ordered_json peak_record(const cpu::Peaks& peaks);

/// One record per batch x context x rows. A sequence's rows are the last ones of its context; the
/// cache holds the others. Errors: kUsage (context beyond the model's, `scored`), kResource,
/// kCancelled.
Expected<void> bench_steps(BenchModel& model, const BenchOptions& options, MaybePeaks& peaks, const BenchWatch& watch,
                           const BenchSink& sink);

/// One record per prompt length x batch (with recordings: per recording x prompt length x batch). Each measurement
/// makes as many generations as the largest batch, from random prompts of the seed, or `answers` of a recording, at
/// most `batch` of them in one forward pass. Errors: as generate_batch(); kMismatch if two batches or two repetitions
/// give different tokens.
Expected<void> bench_generate(BenchModel& model, const BenchOptions& options, const BenchWatch& watch,
                              const BenchSink& sink);

/// One record for the model run autoregressively (CausalTwin), one per preset x tokens per pass, one per recording.
/// Errors: kUsage for a model without masks, as bench_generate().
Expected<void> bench_against_autoregression(BenchModel& model, const BenchOptions& options, const BenchWatch& watch,
                                            const BenchSink& sink);

/// One record per entry of the latency table, which is measured if this machine does not have it yet
/// (engine/latency_file.h): `ms` for rows that see only themselves. Errors: kResource, kCancelled.
Expected<void> bench_latency(BenchModel& model, const BenchOptions& options, const BenchWatch& watch,
                             const BenchSink& sink);

/// One record: time from opening the file to the end of a first step of 32 rows, and its peak resident memory.
Expected<nlohmann::ordered_json> bench_load(const std::string& path, const BenchOptions& options,
                                            const BenchWatch& watch);

/// Runs `body` warmup + n times and returns the seconds of the n runs, where n is at least `repetitions` and large
/// enough for min_seconds. Errors: the body's, kCancelled.
Expected<std::vector<double>> repeat(const BenchOptions& options, const BenchWatch& watch,
                                     const std::function<Expected<void>()>& body,
                                     const std::function<void()>& after_warmup = {});

/// Rows of random tokens without special ones, a function of seed and position.
TokenId bench_token(const ModelDesc& desc, std::uint64_t seed, Position position);

}  // namespace dllm::app
