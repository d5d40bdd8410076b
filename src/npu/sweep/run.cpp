#include "npu/sweep/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/thread_pool.h"
#include "base/try.h"
#include "npu/energy/energy.h"

namespace dllm::npu {
namespace {

constexpr std::int64_t kBatch = 256;  // points between two writes to the store

/// The part of a configuration that decides the achieved bandwidth.
std::string memory_key(const Device& device) {
  return device_json(device)["memory"].dump() + fmt::format("@{}", device.period_fs());
}

std::vector<double> metrics_of(const Device& device, const BlockCost& block, double gbps) {
  const double ms = 1e3;
  return {block.tokens_per_second,
          block.tokens_per_joule,
          block.seconds,
          block.joules,
          block.joules / block.seconds,
          area(device).total(),
          block.serial_seconds,
          block.warm.seconds(device) * ms,
          block.refine.seconds(device) * ms,
          gbps,
          device.peak_tops()};
}

SweepResult evaluate(const SweepPoint& point, const ModelShape& shape, const Expected<double>& gbps) {
  SweepResult result{point.hash, point.configuration, {}, ""};
  const auto run = [&]() -> Expected<void> {
    DLLM_TRY(const double bandwidth, gbps);
    DLLM_TRY(const CostModel model, CostModel::create(point.device, bandwidth));
    const Graph warm = shape.architecture->build(shape.desc, warm_shape(point.workload));
    const Graph refine = shape.architecture->build(shape.desc, refine_shape(point.workload));
    DLLM_TRY(const BlockCost block, evaluate_block(model, warm, refine, point.workload));
    result.metrics = metrics_of(point.device, block, bandwidth);
    return {};
  };
  if (const auto done = run(); !done) result.error = done.error().message();
  return result;
}

std::string limit_exceeded(const SweepSpec& spec, const SweepResult& result) {
  for (const SweepSpec::Limit& limit : spec.limits) {
    const std::size_t i = metric_index(limit.metric);
    const double value = result.metrics[i];
    if (sweep_metrics()[i].larger_is_better ? value < limit.value : value > limit.value) return limit.metric;
  }
  return "";
}

}  // namespace

std::size_t metric_index(std::string_view name) {
  const auto& metrics = sweep_metrics();
  const auto at = std::find_if(metrics.begin(), metrics.end(), [name](const Metric& m) { return m.name == name; });
  return static_cast<std::size_t>(at - metrics.begin());
}

void mark_pareto(std::vector<SweepRow>& rows, std::size_t x, std::size_t y) {
  const auto& metrics = sweep_metrics();
  // As costs: smaller is better in both.
  const auto cost = [&](const SweepRow& row, std::size_t i) {
    return metrics[i].larger_is_better ? -row.result.metrics[i] : row.result.metrics[i];
  };
  std::vector<SweepRow*> order;
  for (SweepRow& row : rows)
    if (row.result.error.empty() && row.over_limit.empty()) order.push_back(&row);
  std::stable_sort(order.begin(), order.end(), [&](const SweepRow* a, const SweepRow* b) {
    return std::pair(cost(*a, x), cost(*a, y)) < std::pair(cost(*b, x), cost(*b, y));
  });
  const SweepRow* last = nullptr;
  for (SweepRow* row : order) {
    const bool same = last != nullptr && cost(*row, x) == cost(*last, x) && cost(*row, y) == cost(*last, y);
    if (last != nullptr && !same && cost(*row, y) >= cost(*last, y)) continue;
    row->pareto = true;
    last = row;
  }
}

Expected<SweepReport> run_sweep(const SweepSpec& spec, SweepStore& store, int threads, const SweepProgress& progress) {
  DLLM_TRY(const ModelShape shape, load_model_shape(spec.model));
  SweepReport report;
  const std::int64_t all = spec.points();
  report.rows.resize(static_cast<std::size_t>(all));
  ThreadPool pool(threads);
  std::map<std::string, Expected<double>> bandwidths;
  std::map<std::string, std::size_t> first;  // row of each hash
  for (std::int64_t begin = 0; begin < all; begin += kBatch) {
    const std::int64_t size = std::min(kBatch, all - begin);
    std::vector<Expected<SweepPoint>> points(static_cast<std::size_t>(size), Error{});
    pool.parallel_for(size, [&](std::int64_t i, int) {
      points[static_cast<std::size_t>(i)] = resolve_point(spec, shape, begin + i);
    });
    std::vector<std::size_t> todo;  // offsets into the batch
    std::map<std::string, const Device*> memories;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const std::size_t index = static_cast<std::size_t>(begin) + i;
      SweepRow& row = report.rows[index];
      row.values = spec.at(begin + static_cast<std::int64_t>(i));
      if (!points[i]) {
        row.result.error = points[i].error().message();
        ++report.invalid;
        continue;
      }
      row.result.hash = points[i]->hash;
      if (!first.emplace(points[i]->hash, index).second) {
        ++report.duplicates;
        continue;
      }
      DLLM_TRY(std::optional<SweepResult> known, store.find(points[i]->hash));
      if (known) {
        row.result = *std::move(known);
        ++report.reused;
        continue;
      }
      todo.push_back(i);
      if (!bandwidths.contains(memory_key(points[i]->device)))
        memories.emplace(memory_key(points[i]->device), &points[i]->device);
    }
    std::vector<std::pair<std::string, const Device*>> missing(memories.begin(), memories.end());
    std::vector<Expected<double>> found(missing.size(), Error{});
    pool.parallel_for(static_cast<std::int64_t>(missing.size()), [&](std::int64_t i, int) {
      found[static_cast<std::size_t>(i)] = achieved_bandwidth(*missing[static_cast<std::size_t>(i)].second);
    });
    for (std::size_t i = 0; i < missing.size(); ++i) bandwidths.emplace(missing[i].first, found[i]);
    std::vector<SweepResult> results(todo.size());
    pool.parallel_for(static_cast<std::int64_t>(todo.size()), [&](std::int64_t i, int) {
      const SweepPoint& point = *points[todo[static_cast<std::size_t>(i)]];
      results[static_cast<std::size_t>(i)] = evaluate(point, shape, bandwidths.at(memory_key(point.device)));
    });
    DLLM_CHECK_OK(store.add(results));
    for (std::size_t i = 0; i < todo.size(); ++i)
      report.rows[static_cast<std::size_t>(begin) + todo[i]].result = std::move(results[i]);
    report.evaluated += static_cast<std::int64_t>(todo.size());
    if (progress && !progress(begin + size, all) && begin + size < all)
      return Error{ErrorCode::kCancelled, fmt::format("stopped after {} of {} points", begin + size, all), "",
                   "the same command goes on from there"};
  }
  for (SweepRow& row : report.rows) {
    if (row.result.metrics.empty() && row.result.error.empty())
      row.result = report.rows[first.at(row.result.hash)].result;  // a duplicate
    if (row.result.error.empty()) row.over_limit = limit_exceeded(spec, row.result);
  }
  mark_pareto(report.rows, metric_index(spec.plot_x), metric_index(spec.plot_y));
  return report;
}

std::string sweep_csv(const SweepSpec& spec, const SweepReport& report) {
  const auto quoted = [](std::string text) {
    if (text.find_first_of(",\"\n") == std::string::npos) return text;
    for (std::size_t i = 0; (i = text.find('"', i)) != std::string::npos; i += 2) text.insert(i, "\"");
    return "\"" + text + "\"";
  };
  std::string text;
  for (const SweepSpec::Axis& axis : spec.axes) text += quoted(axis.key) + ",";
  for (const Metric& metric : sweep_metrics()) text += fmt::format("{},", metric.name);
  text += "over_limit,pareto,hash,error\n";
  for (const SweepRow& row : report.rows) {
    for (const std::string& value : row.values) text += quoted(value) + ",";
    for (std::size_t i = 0; i < sweep_metrics().size(); ++i)
      text += i < row.result.metrics.size() ? fmt::format("{:.9g},", row.result.metrics[i]) : std::string(",");
    text += fmt::format("{},{},{},{}\n", row.over_limit, row.pareto ? 1 : 0, row.result.hash, quoted(row.result.error));
  }
  return text;
}

}  // namespace dllm::npu
