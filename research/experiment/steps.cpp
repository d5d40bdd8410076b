// Experiments with single steps: stairs, windows.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <variant>

#include "base/integers.h"
#include "base/try.h"
#include "experiment/experiments.h"
#include "npu_compiler/analytic/cost_model.h"
#include "npu_core/device/profile.h"

namespace dllm::app {
namespace {

constexpr std::int64_t kKeys = 512;

Expected<double> step_ms(npu::StepTimer& timer, std::int64_t rows) {
  DLLM_TRY(const npu::StepTime time, timer.time({1, rows, rows, kKeys}));
  return time.seconds() * 1e3;
}

/// The cost of the first matrix of the feed-forward network's way down, at so many rows.
Expected<double> down_seconds(Lab& lab, const npu::CostModel& model, std::int64_t rows) {
  DLLM_TRY(const ShapeModel* const shape, lab.shape());
  const Graph graph = shape->graph({.rows = rows, .scored = rows});
  DLLM_TRY(const npu::StepCost cost, model.evaluate(graph, {.sequences = 1, .keys = kKeys}));
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    if (const auto* linear = std::get_if<op::Linear>(&graph.ops[i]))
      if (graph.weight(linear->weight).name.find("ffn_down") != std::string::npos)
        return cost.operators[i].cycles / (model.device().clock.ghz * 1e9);
  return Error{ErrorCode::kUnsupported, "the shape has no ffn_down", "gemm-stairs", ""};
}

Expected<double> matrix_cycles(Lab& lab, const npu::Device& device, std::int64_t rows) {
  DLLM_TRY(const ShapeModel* const shape, lab.shape());
  return npu::gemm_cycles(device, rows, shape->desc.width, shape->desc.ffn_width);
}

}  // namespace

Expected<Figure> step_latency(Lab& lab) {
  Figure figure{
      .name = "step-latency",
      .title = "Latency of a step: host against NPU",
      .setting =
          lab.inputs().shape +
          " in the phones' formats; every row is scored and sees 512 positions; with the memory runtime. Host: the "
          "phone's processor alone, a roofline of assumed rates.",
      .claim =
          "from 32 to 128 rows the latency grows steeply on the CPU and in shallow stairs on the NPU (Tab. 2; its "
          "numbers are not readable in our copy).",
      .columns = {"rows"},
      .x_name = "rows of a step",
      .y_name = "ms"};
  std::array<double, 2> least = {1e9, 1e9}, most = {0, 0};  ///< growth from 32 to 128 rows: host, NPU
  double unpacking = 1;                                     ///< least share of a step of 32 rows
  for (const char* name : kPhones)
    for (const auto processor : {npu::StepProcessor::kHost, npu::StepProcessor::kDevice}) {
      DLLM_TRY(const npu::Device device, npu::load_device(name));
      const bool host = processor == npu::StepProcessor::kHost;
      figure.series.push_back({fmt::format("{} {}", name, host ? "host" : "NPU"), {}});
      figure.columns.push_back(figure.series.back().name + " ms");
      DLLM_TRY(npu::StepTimer timer, lab.timer(device, {1, 128, 0, kKeys}, {.processor = processor}));
      std::size_t line = 0;
      for (std::int64_t rows = 8; rows <= 128; rows += 8, ++line) {
        DLLM_TRY(const double ms, step_ms(timer, rows));
        if (line == figure.rows.size()) figure.rows.push_back({rows});
        figure.rows[line].emplace_back(ms);
        figure.series.back().points.emplace_back(static_cast<double>(rows), ms);
      }
      DLLM_TRY(const npu::StepTime at32, timer.time({1, 32, 32, kKeys}));
      DLLM_TRY(const npu::StepTime at128, timer.time({1, 128, 128, kKeys}));
      const std::size_t which = host ? 0 : 1;
      least[which] = std::min(least[which], at128.seconds() / at32.seconds());
      most[which] = std::max(most[which], at128.seconds() / at32.seconds());
      if (!host) unpacking = std::min(unpacking, at32.vector / at32.seconds());
    }
  figure.verdict = fmt::format(
      "{}: from 32 to 128 rows {:.2f} to {:.2f} times as long on the host, {:.2f} to {:.2f} times on the NPU. Its "
      "vector unit, which unpacks the weights once per step, takes at least {:.0f} % of a step of 32 rows.",
      least[0] > most[1] ? "reproduced in shape" : "not reproduced", least[0], most[0], least[1], most[1],
      100 * unpacking);
  return figure;
}

Expected<Figure> gemm_stairs(Lab& lab) {
  DLLM_TRY(const ShapeModel* const shape, lab.shape());
  Figure figure{
      .name = "gemm-stairs",
      .title = "One product: stairs of rows, and sparse groups",
      .setting = fmt::format("The product down ({} x {}) of one layer of {} on mobile-sm8750: time of the matrix "
                             "unit and of the whole operator with unpacking and dispatch. Sparse groups: the same 32 "
                             "rows as 32/g products of g rows each.",
                             shape->desc.ffn_width, shape->desc.width, lab.inputs().shape),
      .claim =
          "latency has stairs at multiples of 32 rows, and the same 32 tokens in small groups cost "
          "many times one dense product (Fig. 3).",
      .columns = {"case", "rows", "matrix unit ms", "operator ms"},
      .x_name = "rows (groups: rows of a group)",
      .y_name = "ms",
      .log_y = true};
  DLLM_TRY(const npu::Device device, npu::load_device("mobile-sm8750"));
  DLLM_TRY(const double gbps, npu::achieved_bandwidth(device));
  DLLM_TRY(const npu::CostModel model, npu::CostModel::create(device, gbps));
  figure.series = {{"matrix unit", {}}, {"operator", {}}, {"32 rows in groups", {}}};
  const double cycle_ms = 1e-6 / device.clock.ghz;
  for (std::int64_t rows = 4; rows <= 128; rows += 4) {
    DLLM_TRY(const double cycles, matrix_cycles(lab, device, rows));
    DLLM_TRY(const double seconds, down_seconds(lab, model, rows));
    figure.rows.push_back({"dense", rows, cycles * cycle_ms, seconds * 1e3});
    figure.series[0].points.emplace_back(static_cast<double>(rows), cycles * cycle_ms);
    figure.series[1].points.emplace_back(static_cast<double>(rows), seconds * 1e3);
  }
  for (std::int64_t group = 1; group <= 32; group *= 2) {
    DLLM_TRY(const double cycles, matrix_cycles(lab, device, group));
    DLLM_TRY(const double seconds, down_seconds(lab, model, group));
    const auto count = static_cast<double>(32 / group);
    figure.rows.push_back(
        {fmt::format("32 rows in groups of {}", group), 32, count * cycles * cycle_ms, count * seconds * 1e3});
    figure.series[2].points.emplace_back(static_cast<double>(group), count * seconds * 1e3);
  }
  const auto& [unit, whole, groups] =
      std::tie(figure.series[0].points, figure.series[1].points, figure.series[2].points);
  bool stairs = true;  // between multiples of 32 nothing changes, behind them it does
  for (std::size_t i = 1; i < unit.size(); ++i)
    stairs =
        stairs && (unit[i].second != unit[i - 1].second) == (static_cast<std::int64_t>(unit[i - 1].first) % 32 == 0);
  figure.verdict = fmt::format(
      "the matrix unit {} stairs at multiples of 32 rows. The whole operator takes {:.2f} times as long for 128 rows "
      "as for 4. 32 products of one row take {:.1f} times as long as one of 32 rows.",
      stairs ? "has" : "has no", whole.back().second / whole.front().second,
      groups.front().second / groups.back().second);
  return figure;
}

Expected<Figure> weight_budget(Lab& lab) {
  Figure figure{.name = "weight-budget",
                .title = "Resident weights and waiting",
                .setting = "A step of 32 rows of " + lab.inputs().shape +
                           " on mobile-sm8750 that sees 512 positions; staging "
                           "buffer 256 MiB; the window shrinks until all matrices are staged. Without the "
                           "runtime, matrices are mapped when they are needed.",
                .claim =
                    "staging time grows as the weight budget shrinks (256 MB of staging), and the step still "
                    "completes with an empty budget (Fig. 13c).",
                .verdict = "",
                .columns = {"window MB", "staged MB", "waiting ms", "step ms", "without the runtime ms"},
                .x_name = "window, MB",
                .y_name = "ms"};
  figure.series = {{"step with the runtime", {}}, {"of it waiting", {}}, {"without the runtime", {}}};
  double least = 0;
  for (const double mb : {5200, 3355, 2500, 2000, 1500, 1000, 800, 600, 540}) {
    DLLM_TRY(const npu::Device device,
             npu::load_device("mobile-sm8750", {{"window.bytes", fmt::format("{:.0f}", mb * 1e6)}}));
    const npu::StepTotals step{1, 32, 32, kKeys};
    auto timer = lab.timer(device, step, {});
    if (!timer && timer.error().code == ErrorCode::kResource) break;
    if (!timer) return timer.error();
    DLLM_TRY(const npu::StepTime time, timer->time(step));
    least = mb;
    nlohmann::ordered_json paged;
    DLLM_TRY(npu::StepTimer pager, lab.timer(device, step, {.planner = false}));
    const auto without = pager.time(step);
    if (without) {
      paged = without->seconds() * 1e3;
      figure.series[2].points.emplace_back(mb, without->seconds() * 1e3);
    } else if (without.error().code != ErrorCode::kResource) {
      return without.error();
    }
    figure.rows.push_back(
        {mb, static_cast<double>(timer->staged_bytes()) * 1e-6, time.staging * 1e3, time.seconds() * 1e3, paged});
    figure.series[0].points.emplace_back(mb, time.seconds() * 1e3);
    figure.series[1].points.emplace_back(mb, time.staging * 1e3);
  }
  bool grows = figure.rows.size() > 1;  // as the window shrinks
  const auto& waits = figure.series[1].points;
  for (std::size_t i = 1; i < waits.size(); ++i) grows = grows && waits[i].second >= waits[i - 1].second - 1e-6;
  figure.verdict = fmt::format(
      "{}: waiting is {:.1f} ms with the largest window and {:.1f} ms with {:.0f} MB, the smallest in which the step "
      "completes of those tried. The costs of mapping are assumed.",
      grows ? "reproduced" : "not reproduced", waits.front().second, waits.back().second, least);
  return figure;
}

Expected<Figure> memory_boundary(Lab& lab) {
  Figure figure{.name = "memory-boundary",
                .title = "Large steps with and without the memory runtime",
                .setting = "One step of so many rows of " + lab.inputs().shape +
                           " (32 of them scored) that see as many "
                           "positions, at least 512. Without the runtime activations do not share memory, and every "
                           "matrix is a mapping.",
                .claim = "without the memory runtime micro-batches of 256 and 512 fail; with it they run (Tab. 7).",
                .columns = {"phone", "rows", "with the runtime ms", "without ms", "why not"},
                .x_name = "rows of a step",
                .y_name = "ms"};
  std::string with, without;  ///< steps that fail
  for (const char* name : kPhones) {
    DLLM_TRY(const npu::Device device, npu::load_device(name));
    for (const bool planner : {true, false})
      figure.series.push_back({fmt::format("{} {}", name, planner ? "with" : "without"), {}});
    for (const std::int64_t rows : {32, 64, 128, 256, 512}) {
      std::vector<nlohmann::ordered_json> row = {name, rows};
      std::string why;
      for (const bool planner : {true, false}) {
        const npu::StepTotals step{1, rows, 32, std::max(rows, kKeys)};
        auto timer = lab.timer(device, step, {.planner = planner});
        const auto time = timer ? timer->time(step) : Expected<npu::StepTime>(timer.error());
        if (!time && time.error().code != ErrorCode::kResource) return time.error();
        row.emplace_back();
        if (!time) {
          why = time.error().what;
          continue;
        }
        row.back() = time->seconds() * 1e3;
        figure.series[figure.series.size() - (planner ? 2 : 1)].points.emplace_back(static_cast<double>(rows),
                                                                                    time->seconds() * 1e3);
      }
      if (row[2].is_null()) with += fmt::format("{}{} at {}", with.empty() ? "" : ", ", name, rows);
      if (row[3].is_null()) without += fmt::format("{}{} at {}", without.empty() ? "" : ", ", name, rows);
      row.emplace_back(why);
      figure.rows.push_back(std::move(row));
    }
  }
  figure.verdict =
      fmt::format("with the runtime {}; without it, under our reading of what that means (npu-answers.md), {}.",
                  with.empty() ? "every step runs" : "these fail: " + with,
                  without.empty() ? "every step runs too" : "these fail: " + without);
  return figure;
}

}  // namespace dllm::app
