// Are the points of a front what their programs do?

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/testing/temp_dir.h"
#include "npu_compiler/compiler/device_step.h"
#include "npu_compiler/sweep/run.h"
#include "npu_compiler/sweep/simulated_front.h"
#include "npu_core/device/profile.h"
#include "npu_core/timing/simulator.h"

namespace dllm::npu {
namespace {

constexpr const char* kDense =
    "name = \"dense\"\narchitecture = \"llada\"\nvocab = 2048\nwidth = 4096\nlayers = 1\nheads = 32\n"
    "kv_heads = 32\nhead_dim = 128\nffn_width = 4096\n";
constexpr const char* kExperts =
    "name = \"experts\"\narchitecture = \"llada-moe\"\nvocab = 2048\nwidth = 2048\nlayers = 1\nheads = 16\n"
    "kv_heads = 16\nhead_dim = 128\nffn_width = 2048\n[experts]\ncount = 16\nused = 4\nwidth = 1024\n";
constexpr const char* kSpace =
    "name = \"front\"\nmodel = \"{}\"\n[device]\nbase = \"dart-2048\"\n\"array.blen\" = [32, 128]\n"
    "\"memory.stacks\" = [1, 4]\n\"sram.vector_rows\" = [256, 1024, 2048, 8192]\n[workload]\nbatch = [1, 4]\n"
    "context = [256]\n";

/// Seconds of a step of the compiled program.
Expected<double> simulated_seconds(const Device& device, const ModelShape& shape, const StepSize& step) {
  const auto build = [&](StepShape rows) { return shape.architecture->build(shape.desc, rows); };
  const auto compiled = compile_graph(build, device, step, {});
  if (!compiled) return compiled.error();
  const auto report = simulate(device, compiled->machine, compiled->step.program, {});
  if (!report) return report.error();
  return report->seconds(device);
}

class Front : public testing::TestWithParam<const char*> {
 protected:
  std::string stem_ = (std::filesystem::temp_directory_path() / fmt::format("dllm_front_test_{}", ::getpid())).string();
  void TearDown() override {
    for (const char* end : {".toml", ".sqlite"}) std::filesystem::remove(stem_ + end);
  }
};

/// A point has the time of both of its programs, in the parts that are compiled; one without programs is refused with
/// the compiler's words, the warm step's if that is what does not fit.
TEST_P(Front, PointsAreWhatTheirProgramsDo) {
  std::ofstream(stem_ + ".toml") << GetParam();
  const auto spec = parse_sweep(fmt::format(fmt::runtime(kSpace), stem_ + ".toml"), "s.toml");
  ASSERT_TRUE(spec) << spec.error().message();
  auto store = *SweepStore::open(stem_ + ".sqlite");
  const auto report = run_sweep(*spec, store, 1, {});
  ASSERT_TRUE(report) << report.error().message();
  const ModelShape shape = *load_model_shape(stem_ + ".toml");
  int front = 0, refused = 0;
  for (const SweepRow& row : report->rows) {
    const std::vector<std::string> at = spec->at(row.point);
    const auto device =
        load_device("dart-2048", {{"array.blen", at[0]}, {"memory.stacks", at[1]}, {"sram.vector_rows", at[2]}});
    const Workload w{.batch = std::stol(at[3]), .context = 256};
    SCOPED_TRACE(fmt::format("blen {}, {} stacks, {} rows, batch {}", at[0], at[1], at[2], at[3]));
    if (row.error != 0) {
      auto why = simulated_seconds(*device, shape, warm_step(w));
      const auto refinement = simulated_seconds(*device, shape, refine_step(w));
      if (why) why = refinement;
      ASSERT_FALSE(why);
      EXPECT_EQ(report->errors[row.error], why.error().message());
      ++refused;
    } else if (row.pareto) {
      const auto warm = simulated_seconds(*device, shape, warm_step(w)),
                 refine = simulated_seconds(*device, shape, refine_step(w));
      ASSERT_TRUE(warm && refine);
      EXPECT_NEAR(row.metrics[metric_index("warm_ms")] * 1e-3, *warm, 0.05 * *warm);
      EXPECT_NEAR(row.metrics[metric_index("refine_ms")] * 1e-3, *refine, 0.05 * *refine);
      ++front;
    }
  }
  EXPECT_GE(front, 3);
  EXPECT_GE(refused, 4);
}
/// Every point that stays on the front has programs that are at least as fast as it says; the front is that of the
/// rest.
TEST_P(Front, SimulatedFrontsKeepWhatRuns) {
  std::ofstream(stem_ + ".toml") << GetParam();
  const auto spec = parse_sweep(fmt::format(fmt::runtime(kSpace), stem_ + ".toml"), "s.toml");
  ASSERT_TRUE(spec) << spec.error().message();
  auto store = *SweepStore::open(stem_ + ".sqlite");
  auto report = run_sweep(*spec, store, 1, {});
  ASSERT_TRUE(report) << report.error().message();
  // A point that nothing can reach stands before the front, and hides all of it but one.
  SweepRow& false_point = *std::ranges::find_if(report->rows, [](const SweepRow& row) { return row.error != 0; });
  const SweepMetrics of_another =
      std::ranges::find_if(report->rows, [](const SweepRow& row) { return row.pareto; })->metrics;
  false_point.error = 0;
  false_point.metrics = of_another;
  false_point.metrics[metric_index("area_mm2")] = 1;
  false_point.metrics[metric_index("tokens_per_second")] = 1e9;
  for (SweepRow& row : report->rows) row.pareto = false;
  finish_sweep(*spec, *report);
  ASSERT_EQ(std::ranges::count_if(report->rows, [](const SweepRow& row) { return row.pareto; }), 1);

  const test::TempDir directory;
  std::int64_t calls = 0;
  const auto simulated = simulate_front(*spec, *report, directory.path().string(), [&](std::int64_t, std::int64_t) {
    ++calls;
    return true;
  });
  ASSERT_TRUE(simulated) << simulated.error().message();
  EXPECT_NE(false_point.error, 0u);
  EXPECT_FALSE(false_point.pareto);
  std::vector<std::int64_t> front, run;
  for (const SweepRow& row : report->rows)
    if (row.pareto) front.push_back(row.point);
  for (const SimulatedPoint& p : report->simulated) run.push_back(p.point);
  EXPECT_GE(front.size(), 3u);
  EXPECT_EQ(front, run);
  EXPECT_GE(calls, static_cast<std::int64_t>(front.size()) + 1);
  for (const SimulatedPoint& p : report->simulated) {
    const SweepMetrics& priced = report->rows[static_cast<std::size_t>(p.point)].metrics;
    EXPECT_LE(p.warm_ms, 1.06 * priced[metric_index("warm_ms")]);
    EXPECT_LE(p.refine_ms, 1.06 * priced[metric_index("refine_ms")]);
    EXPECT_GE(p.refine_ms, 0.8 * priced[metric_index("refine_ms")]);
  }
  // Kept: the second time is the same, and progress can stop it before the first point.
  SweepReport again = *run_sweep(*spec, store, 1, {});
  const auto stopped = simulate_front(*spec, again, "", [](std::int64_t, std::int64_t) { return false; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
}
INSTANTIATE_TEST_SUITE_P(Models, Front, testing::Values(kDense, kExperts));

}  // namespace
}  // namespace dllm::npu
