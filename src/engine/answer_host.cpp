#include "engine/answer_host.h"

#include <utility>

#include "base/try.h"
#include "engine/backends.h"
#include "engine/latency_file.h"
#include "engine/method.h"

namespace dllm {

Expected<AnswerMeans> answer_means(const RunningBackend& running, const ResolvedOptions& resolved,
                                   std::stop_token stop) {
  AnswerMeans means;
  if (const std::string name = latency_name(resolved); !name.empty()) {
    DLLM_TRY(means.latency, step_costs(running, name, Log(), std::move(stop)));
  }
  if (const auto path = second_path_of(resolved, running.backend->desc())) {
    DLLM_TRY(means.second, second_path_runner(running, path->refresh_threads));
  }
  return means;
}

Expected<LatencyTable> step_costs(const RunningBackend& running, const std::string& name, const Log& log,
                                  std::stop_token stop) {
  if (running.clock && name == "auto") return running.clock->latency_table();
  if (!running.latency && name == "auto")
    return Error{ErrorCode::kUsage, "steps of a simulated processor are not timed by this machine's clock", "--latency",
                 "name a file with a table of its steps"};
  return requested_latency(name, *running.backend, running.latency.value_or(LatencyKey()), log, std::move(stop));
}

Expected<std::unique_ptr<PassRunner>> second_path_runner(const RunningBackend& running, int threads) {
  if (!running.second_path)
    return Error{ErrorCode::kUnsupported, "this backend runs one pass at a time", "--refresh-path",
                 "leave the option out"};
  return running.second_path(threads);
}

}  // namespace dllm
