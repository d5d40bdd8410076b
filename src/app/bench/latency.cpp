#include <nlohmann/json.hpp>

#include "app/bench/bench.h"
#include "base/cache_directory.h"
#include "base/try.h"
#include "engine/latency_file.h"

namespace dllm::app {

Expected<void> bench_latency(BenchModel& model, const BenchOptions& options, const BenchWatch& watch,
                             const BenchSink& sink) {
  if (watch.progress) watch.progress("measuring the latency table");
  if (!model.running.latency)
    return Error{ErrorCode::kUnsupported, "the time of steps is kept in no table for this backend", "latency",
                 "leave --backend out"};
  const LatencyKey& key = *model.running.latency;
  LatencyOptions measurement;
  measurement.repetitions = options.repetitions;
  measurement.stop = watch.stop;
  DLLM_TRY(const LatencyResult result,
           latency_table(model.backend(), key, cache_directory(), options.renew_latency, measurement, Log()));
  for (const LatencyTable::Point& point : result.table.points()) {
    nlohmann::ordered_json json = {{"test", "latency"}};
    json.update(model.describe());
    json["activations"] = key.activations;
    json["rows"] = point.rows;
    json["context"] = point.rows;
    json["ms"] = {{"median", point.ms}};
    json["ms_context_512"] = result.table.estimate_ms(point.rows, 512);
    json["ms_per_pair"] = result.table.ms_per_pair();
    json["measured"] = result.measured;
    json["file"] = result.path;
    sink(json);
  }
  return {};
}

}  // namespace dllm::app
