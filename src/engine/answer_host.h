#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "backend/backend.h"
#include "backend/latency_table.h"
#include "base/log.h"
#include "decode/loop/second_path.h"
#include "dllm/error.h"
#include "dllm/options.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {

struct RunningBackend;

/// What answers are computed on. All of it is borrowed.
struct AnswerHost {
  Backend& backend;
  const Tokenizer* tokenizer = nullptr;   ///< null: answers have ids and no text
  const LatencyTable* latency = nullptr;  ///< null: the cost of steps is unknown
  PassRunner* second = nullptr;           ///< null: there is no second path
};

/// What a request needs of a backend beside passes.
struct AnswerMeans {
  std::optional<LatencyTable> latency;
  std::unique_ptr<PassRunner> second;

  AnswerHost on(Backend& backend) const { return {backend, nullptr, latency ? &*latency : nullptr, second.get()}; }
};

/// Errors: those of step_costs() and second_path_runner().
Expected<AnswerMeans> answer_means(const RunningBackend& running, const ResolvedOptions& resolved,
                                   std::stop_token stop);

/// The table of the option `latency` ("auto", "nominal", a file): the backend's own clock counts, or this machine's.
/// Errors: kUsage (the backend has no table of its own), those of requested_latency().
Expected<LatencyTable> step_costs(const RunningBackend& running, const std::string& name, const Log& log,
                                  std::stop_token stop);

/// A runner of the second path with `threads` of its own. Errors: kUnsupported (the backend runs one pass at a time),
/// kUsage, kResource.
Expected<std::unique_ptr<PassRunner>> second_path_runner(const RunningBackend& running, int threads);

}  // namespace dllm
