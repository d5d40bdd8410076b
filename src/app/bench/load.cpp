#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/bench/bench.h"
#include "app/bench/host.h"
#include "app/bench/stats.h"
#include "base/try.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr Position kFirstRows = 32;

Expected<void> first_step(BenchModel& model) {
  const ModelDesc& desc = model.model->desc();
  DLLM_TRY(const auto cache, model.backend().make_cache(kFirstRows));
  SequenceStep step;
  step.cache = cache.get();
  for (Position p = 0; p < kFirstRows; ++p) {
    step.plan.rows.push_back({p, bench_token(desc, 0, p)});
    step.plan.scored.push_back(p);
  }
  step.plan.visible = {{0, kFirstRows}};
  step.plan.causal_block = desc.causal_block;
  DLLM_TRY(const auto scores, model.backend().forward({&step, 1}));
  return {};
}

}  // namespace

Expected<Json> bench_load(const std::string& path, const BenchOptions& options, const BenchWatch& watch) {
  if (watch.progress) watch.progress("loading");
  std::vector<double> opens;
  Json description;
  std::int64_t peak = 0;
  BenchOptions once = options;
  once.min_seconds = 0;  // every repetition reads the whole file
  const auto body = [&]() -> Expected<void> {
    DLLM_TRY(BenchModel model, BenchModel::open(path, once.load));
    once.load.warnings = false;  // reported once
    DLLM_CHECK_OK(first_step(model));
    opens.push_back(model.open_seconds);
    description = model.describe();
    peak = peak_resident_bytes();
    return {};
  };
  // The warm-up leaves the file in the page cache.
  DLLM_TRY(const auto totals, repeat(once, watch, body, [&] { opens.clear(); }));
  Json json = {{"test", "load"}};
  json.update(description);
  std::error_code ignored;
  json["file_bytes"] = path.empty() || std::filesystem::is_directory(path, ignored)
                           ? description["bytes"].get<std::int64_t>()
                           : static_cast<std::int64_t>(std::filesystem::file_size(path, ignored));
  json["rows"] = kFirstRows;
  json["repetitions"] = totals.size();
  json["open_ms"] = summary_json(opens, 1e3);
  json["ms"] = summary_json(totals, 1e3);
  json["peak_rss_bytes"] = peak;
  return json;
}

}  // namespace dllm::app
