#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>

#include "base/testing/fuzz_replay.h"
#include "npu_compiler/compiler/block_cost.h"
#include "npu_compiler/sweep/finished.h"
#include "npu_compiler/sweep/run.h"
#include "npu_compiler/sweep/space.h"
#include "npu_compiler/sweep/testing/fuzz_entry.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {
namespace {

constexpr const char* kSpec =
    "name = \"t\"\nmodel = \"llada-8b\"\n[device]\nbase = \"dart-2048\"\n\"array.blen\" = [32, 96, 128]\n"
    "\"memory.stacks\" = [1, 2]\n\"clock.ghz\" = [1, 1.0]\n[workload]\nbatch = [1, 16]\n[limits]\narea_mm2 = 40\n";

struct Database {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("dllm_sweep_test_" + std::to_string(::getpid()) + ".sqlite");
  Database() { std::filesystem::remove(path); }
  ~Database() { std::filesystem::remove(path); }
};

Expected<SweepReport> run(const std::string& spec_text, const Database& database, int threads,
                          const SweepProgress& progress = {}) {
  auto spec = parse_sweep(spec_text, "s.toml");
  if (!spec) return spec.error();
  auto store = SweepStore::open(database.path.string());
  if (!store) return store.error();
  return run_sweep(*spec, *store, threads, progress);
}

TEST(FuzzCorpus, NpuToml) { test::replay_corpus("npu_toml", 20, fuzz_npu_toml); }

TEST(Sweep, EvaluatesOnceAndGoesOn) {
  const Database database;
  const auto first = run(kSpec, database, 2);
  ASSERT_TRUE(first) << first.error().message();
  ASSERT_EQ(first->rows.size(), 24u);
  EXPECT_EQ(first->invalid, 8);     // BLEN 96 does not divide MLEN
  EXPECT_EQ(first->duplicates, 8);  // 1 GHz is 1.0 GHz
  EXPECT_EQ(first->evaluated, 8);
  EXPECT_EQ(first->reused, 0);
  const auto second = run(kSpec, database, 1);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->evaluated, 0);
  EXPECT_EQ(second->reused, 8);
  const SweepSpec spec = *parse_sweep(kSpec, "s");
  EXPECT_EQ(sweep_csv(spec, *first), sweep_csv(spec, *second));
}

TEST(Sweep, ThreadsDoNotChangeTheResult) {
  const Database one, four;
  const SweepSpec spec = *parse_sweep(kSpec, "s");
  EXPECT_EQ(sweep_csv(spec, *run(kSpec, one, 1)), sweep_csv(spec, *run(kSpec, four, 4)));
}

/// The packed copy gives what the points gave, with the limits of the run; a damaged one is not used.
TEST(Sweep, FinishedSweepsAreReadWhole) {
  SweepSpec spec = *parse_sweep(kSpec, "s");
  SweepStore store = *SweepStore::open(":memory:");
  const auto first = run_sweep(spec, store, 1, {});
  ASSERT_TRUE(first.has_value()) << first.error().message();
  const auto copy = finished_sweep(spec, store, 2);
  ASSERT_TRUE(copy.has_value() && copy->has_value());
  EXPECT_EQ(sweep_csv(spec, **copy), sweep_csv(spec, *first));
  EXPECT_EQ((*copy)->duplicates, first->duplicates);
  EXPECT_EQ((*copy)->invalid, first->invalid);
  spec.limits = {{"area_mm2", 1.0}};
  const auto limited = finished_sweep(spec, store, 1);
  for (const SweepRow& row : (*limited)->rows) EXPECT_TRUE(row.error != 0 || (row.over_limit == 0 && !row.pareto));
  spec.axes.front().values.pop_back();
  EXPECT_FALSE(finished_sweep(spec, store, 1)->has_value());
}

TEST(Sweep, DamagedCopiesAreNotUsed) {
  const SweepSpec spec = *parse_sweep(kSpec, "s");
  SweepStore store = *SweepStore::open(":memory:");
  ASSERT_TRUE(run_sweep(spec, store, 1, {}).has_value());
  const std::uint64_t key = (*SweepSpace::create(spec))->points_hash();
  const std::vector<std::string> good = **store.finished(key);
  for (const int damage : {0, 1, 2, 3, 4}) {
    SCOPED_TRACE(damage);
    std::vector<std::string> parts = good;
    if (damage == 0) parts.back()[100] = static_cast<char>(parts.back()[100] ^ 1);
    if (damage == 1) parts.back().pop_back();
    if (damage == 2) parts.front().resize(8);
    if (damage == 3) parts.front()[16] = static_cast<char>(parts.front()[16] ^ 1);  // the number of duplicates
    if (damage == 4) parts.front().insert(parts.front().size() - 1, "x");           // the text of an error
    ASSERT_TRUE(store.keep_finished(key, parts).has_value());
    EXPECT_FALSE(finished_sweep(spec, store, 1)->has_value());
  }
}

TEST(Sweep, InvalidPointsSayWhy) {
  const Database database;
  const auto report = run(kSpec, database, 2);
  int invalid = 0;
  for (const SweepRow& row : report->rows)
    if (row.error != 0) {
      ++invalid;
      EXPECT_NE(report->errors[row.error].find("not a multiple of BLEN"), std::string::npos);
      EXPECT_FALSE(row.pareto);
    }
  EXPECT_EQ(invalid, 8);
}

TEST(Sweep, ParetoFront) {
  std::vector<SweepRow> rows(5);
  const std::size_t area = metric_index("area_mm2"), speed = metric_index("tokens_per_second");
  const double points[5][2] = {{1, 10}, {2, 20}, {2, 15}, {3, 20}, {4, 30}};
  for (std::size_t i = 0; i < 5; ++i) {
    rows[i].metrics[area] = points[i][0];
    rows[i].metrics[speed] = points[i][1];
  }
  mark_pareto(rows, area, speed);
  EXPECT_TRUE(rows[0].pareto);
  EXPECT_TRUE(rows[1].pareto);
  EXPECT_FALSE(rows[2].pareto);
  EXPECT_FALSE(rows[3].pareto);
  EXPECT_TRUE(rows[4].pareto);
  rows[1].over_limit = 0;
  for (SweepRow& row : rows) row.pareto = false;
  mark_pareto(rows, area, speed);
  EXPECT_TRUE(rows[2].pareto);
}

TEST(Sweep, PlotHasAPointPerValidRow) {
  const Database database;
  const SweepSpec spec = *parse_sweep(kSpec, "s");
  const std::string svg = sweep_svg(spec, *run(kSpec, database, 2));
  std::size_t circles = 0;
  for (std::size_t at = 0; (at = svg.find("<circle", at)) != std::string::npos; ++at) ++circles;
  EXPECT_EQ(circles, 16u);
  EXPECT_NE(svg.find("tokens_per_second [1/s]"), std::string::npos);
}

/// A point's figures equal those of analyze for the same device and workload, to the last bit.
TEST(Sweep, AgreesWithAnalyze) {
  const Database database;
  const auto report = run(kSpec, database, 1);
  const SweepSpec spec = *parse_sweep(kSpec, "s");
  const ModelShape shape = *load_model_shape("llada-8b");
  int compared = 0;
  for (const SweepRow& row : report->rows) {
    if (row.error != 0) continue;
    const std::vector<std::string> values = spec.at(row.point);
    const Device device =
        *load_device("dart-2048", {{"array.blen", values[0]}, {"memory.stacks", values[1]}, {"clock.ghz", values[2]}});
    Workload w;
    w.batch = std::stol(values[3]);
    const double gbps = *achieved_bandwidth(device);
    const auto model = CostModel::create(device, gbps);
    StepTimes times(shape);
    const auto block =
        evaluate_block(times, *model, shape.architecture->build(shape.desc, warm_shape(w)),
                       shape.architecture->build(shape.desc, refine_shape(w)), w, *check_feasible(device, shape, w));
    ASSERT_TRUE(block);
    EXPECT_EQ(row.metrics[metric_index("tokens_per_second")], block->tokens_per_second);
    EXPECT_EQ(row.metrics[metric_index("tokens_per_joule")], block->tokens_per_joule);
    EXPECT_EQ(row.metrics[metric_index("serial_seconds")], block->serial_seconds);
    EXPECT_EQ(row.metrics[metric_index("warm_ms")], block->warm.seconds * 1e3);
    EXPECT_EQ(row.metrics[metric_index("peak_tops")], device.peak_tops());
    ++compared;
  }
  EXPECT_EQ(compared, 16);
}

/// What an evaluator and its space keep from point to point does not change the next one.
TEST(Sweep, PointsDoNotDependOnEarlierOnes) {
  const std::vector<std::vector<Override>> points = {
      {},
      {{"array.mlen", "1024"}},
      {{"array.mlen", "1024"}, {"array.hlen", "256"}},
      {{"numerics.smooth_keys", "minmax"}},
      {{"memory.dma_gbps", "300"}, {"clock.ghz", "1.1"}},
      {{"memory.dma_gbps", "600"}},
      {{"workload.batch", "3"}, {"sram.vector_rows", "4096"}},
      {{"workload.batch", "33"}, {"workload.context", "300"}},
      {{"workload.batch", "16"}, {"workload.context", "300"}, {"sram.matrix_tiles", "24"}},
      {{"latency.vector_mul", "4"}},
      {},
  };
  SweepSpec spec;
  spec.base = "dart-2048", spec.model = "llada2-mini";
  const auto space = SweepSpace::create(spec);
  ASSERT_TRUE(space) << space.error().message();
  PointEvaluator kept(**space);
  int found = 0;
  for (const std::vector<Override>& point : points) {
    const auto alone = SweepSpace::create(spec);
    ASSERT_TRUE(alone);
    const auto first = PointEvaluator(**alone).evaluate(std::span<const Override>(point));
    const auto next = kept.evaluate(std::span<const Override>(point));
    ASSERT_EQ(first.has_value(), next.has_value());
    if (first) {
      EXPECT_EQ(*first, *next) << (point.empty() ? "the base" : point.front().key);
      ++found;
    } else {
      EXPECT_EQ(first.error().message(), next.error().message());
    }
  }
  EXPECT_GE(found, 8);
}

/// Work that points share is shared only among points that need the same room: smoothing takes some.
TEST(Sweep, PartsAreThoseOfEveryPoint) {
  const Database database;
  const char* kText =
      "name = \"p\"\nmodel = \"llada-8b\"\n[device]\nbase = \"dart-2048\"\n"
      "\"numerics.smooth_keys\" = [\"none\", \"minmax\"]\n"
      "\"sram.vector_rows\" = [2048, 2560, 3072, 3584, 4096]\n[workload]\nbatch = [16]\n";
  const auto report = run(kText, database, 1);
  ASSERT_TRUE(report) << report.error().message();
  const SweepSpec spec = *parse_sweep(kText, "s");
  const ModelShape shape = *load_model_shape("llada-8b");
  std::map<std::string, std::vector<std::string>> parts;  // by rows
  for (const SweepRow& row : report->rows) {
    const std::vector<std::string> at = spec.at(row.point);
    const Device device = *load_device("dart-2048", {{"numerics.smooth_keys", at[0]}, {"sram.vector_rows", at[1]}});
    const auto found = check_feasible(device, shape, Workload{});
    ASSERT_EQ(static_cast<bool>(found), row.error == 0) << at[0] << " " << at[1];
    parts[at[1]].push_back(found ? fmt::format("{} {}", found->warm.size(), found->refine.size())
                                 : found.error().message());
    if (!found) {
      EXPECT_EQ(report->errors[row.error], found.error().message());
      continue;
    }
    StepTimes times(shape);
    const auto block = evaluate_block(times, *CostModel::create(device, *achieved_bandwidth(device)),
                                      shape.architecture->build(shape.desc, warm_shape({})),
                                      shape.architecture->build(shape.desc, refine_shape({})), {}, *found);
    EXPECT_EQ(row.metrics[metric_index("tokens_per_second")], block->tokens_per_second) << at[0] << " " << at[1];
  }
  EXPECT_TRUE(std::ranges::any_of(parts, [](const auto& one) { return one.second[0] != one.second[1]; }));
}

/// Pieces of a sweep, as computed on several machines, add up to the sweep.
TEST(Sweep, RangesAreThePoints) {
  const Database whole, parts;
  const SweepSpec spec = *parse_sweep(kSpec, "s");
  const auto all = run(kSpec, whole, 2);
  auto store = *SweepStore::open(parts.path.string() + ".b");
  for (const SweepRange range : {SweepRange{0, 10}, SweepRange{10, 14}}) {
    const auto part = run_sweep(spec, store, 1, {}, range);
    ASSERT_TRUE(part) << part.error().message();
    for (const SweepRow& row : part->rows) {
      EXPECT_EQ(row.metrics, all->rows[static_cast<std::size_t>(row.point)].metrics);
      EXPECT_EQ(part->errors[row.error], all->errors[all->rows[static_cast<std::size_t>(row.point)].error]);
    }
  }
  EXPECT_FALSE(run_sweep(spec, store, 1, {}, {20, 10}));
  std::filesystem::remove(parts.path.string() + ".b");
}

constexpr const char* kLargeSpec =
    "name = \"large\"\nmodel = \"llada-8b\"\n[device]\nbase = \"dart-2048\"\n"
    "\"array.blen\" = [16, 32, 64, 128]\n\"sram.vector_ports\" = [1, 2, 3]\n"
    "\"clock.ghz\" = [0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5]\n\"memory.stacks\" = [1, 2, 4]\n"
    "\"sram.matrix_tiles\" = [12, 16, 24, 32]\n[workload]\nbatch = [1, 4, 16]\n";

/// A twentieth of the points is enough to find the whole front.
TEST(Sweep, SearchReachesTheGridsFront) {
  const Database grid_file, search_file;
  const SweepSpec spec = *parse_sweep(kLargeSpec, "s");
  const auto grid = run(kLargeSpec, grid_file, 2);
  ASSERT_TRUE(grid) << grid.error().message();
  auto store = *SweepStore::open(search_file.path.string() + ".s");
  const auto found = search_sweep(spec, store, 2, {}, {});
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_LE(found->rows.size(), grid->rows.size() / 20);
  const std::size_t x = metric_index(spec.plot_x), y = metric_index(spec.plot_y);
  // Fraction of the area dominated by the grid's front, relative to the corner of its worst values.
  const auto volume = [&](const SweepReport& report, double worst_x) {
    std::vector<std::pair<double, double>> front;
    for (const SweepRow& row : report.rows)
      if (row.pareto) front.emplace_back(row.metrics[x], row.metrics[y]);
    std::sort(front.begin(), front.end());
    double sum = 0;
    for (std::size_t i = 0; i < front.size(); ++i)
      sum += front[i].second * ((i + 1 < front.size() ? front[i + 1].first : worst_x) - front[i].first);
    return sum;
  };
  double worst = 0;
  for (const SweepRow& row : grid->rows)
    if (row.pareto) worst = std::max(worst, row.metrics[x]);
  EXPECT_GT(volume(*found, 1.01 * worst), 0.995 * volume(*grid, 1.01 * worst));
  std::filesystem::remove(search_file.path.string() + ".s");
  EXPECT_LT(sweep_svg(spec, *grid).size(), 1000000u);
  EXPECT_NE(sweep_svg(spec, *grid).find("fill-opacity"), std::string::npos) << "a density";
}

TEST(Sweep, MistakesAreNamed) {
  const auto message = [](const std::string& text) {
    const auto spec = parse_sweep(text, "s.toml");
    return spec ? "" : spec.error().message();
  };
  const std::string head = "name = \"t\"\nmodel = \"llada-8b\"\n";
  EXPECT_NE(message(head + "[device]\nbase = \"dart-2048\"\n\"array.vlan\" = [1]\n").find("array.vlen"),
            std::string::npos);
  EXPECT_NE(message(head + "[device]\nbase = \"dart-2048\"\n[limits]\nspeed = 3\n").find("unknown metric"),
            std::string::npos);
  EXPECT_NE(message(head + "[device]\nbase = \"dart-2048\"\n[workload]\nbacth = 3\n").find("s.toml:6"),
            std::string::npos);
  EXPECT_NE(message(head + "[device]\nbase = \"dart-2048\"\n\"array.blen\" = []\n").find("no values"),
            std::string::npos);
  EXPECT_NE(message(head + "[device]\nbase = \"dart-2048\"\n\"array.tile_cycles\" = [1]\n").find("follows from"),
            std::string::npos);
  EXPECT_NE(message(head + "[device]\nbase = \"dart-2048\"\n\"issue.width\" = [1, 2]\n").find("dllm npu step"),
            std::string::npos);
  EXPECT_FALSE(SweepStore::open("/nonexistent/folder/x.sqlite"));
}

}  // namespace
}  // namespace dllm::npu
